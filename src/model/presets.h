// Well-known checkpoints: the published config.json of each, as far as it differs from the class defaults. Each stands with its family.
#pragma once

#include <cstdint>
#include <vector>

namespace plimsoll {

struct Preset {
  const char* name;              // "llama-3.1-8b"
  const char* config;            // JSON, only what differs from the class defaults
  int64_t seq;                   // a usual length; 0: the family's
  const char* family = nullptr;  // name in the model registry; in a family's own list, null: its first model
};

const std::vector<Preset>& presets();

}  // namespace plimsoll
