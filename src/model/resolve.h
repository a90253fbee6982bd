// From what a user calls a model to what can be built: a preset, a family, a Hugging Face config.json or its directory.
#pragma once

#include "job/job.h"
#include "model/presets.h"

namespace plimsoll {

// Fills family, config, inputs and (when unset) seq from job.model. Settings in job.config win over the file's.
void resolve_model(Job& job);

// Whether the text names a preset, a family or a model on the Hub that is known here. Files are not looked at.
bool is_model_name(const std::string& text);

}  // namespace plimsoll
