// From what a user calls a model to what can be built: a preset, a family, a Hugging Face config.json or its directory.
#pragma once

#include <string>
#include <vector>

#include "job/job.h"

namespace plimsoll {

struct Preset {
  const char* name;    // "llama-3.1-8b"
  const char* family;  // name in the model registry
  const char* config;  // JSON, only what differs from the class defaults
  int64_t seq;         // a usual length; 0: the family's
};

const std::vector<Preset>& presets();

// Fills family, config, inputs and (when unset) seq from job.model. Settings in job.config win over the file's.
void resolve_model(Job& job);

}  // namespace plimsoll
