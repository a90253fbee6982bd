// Models that torchtitan has, by its names and by ours.
#pragma once

#include <string>
#include <vector>

namespace plimsoll {

struct TorchtitanModel {
  const char *name, *flavor;  // "llama3", "8B"
  const char* preset;         // of the same shape
};
const std::vector<TorchtitanModel>& torchtitan_models();

// The preset of that shape; empty: none. Capitals do not matter.
std::string preset_of(const std::string& name, const std::string& flavor);

}  // namespace plimsoll
