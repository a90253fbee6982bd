// Models that torchtitan has, by its names and by ours.
#pragma once

#include <optional>
#include <string>

namespace plimsoll {

struct TorchtitanModel {
  std::string name, flavor;  // "llama3", "8B"
};

// None where torchtitan has no model of that shape.
std::optional<TorchtitanModel> torchtitan_model(const std::string& preset);
// The preset of that shape; empty: none. Capitals do not matter.
std::string preset_of(const TorchtitanModel& model);

}  // namespace plimsoll
