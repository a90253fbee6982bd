#include "job/torchtitan_models.h"

#include "util/text.h"

namespace plimsoll {

const std::vector<TorchtitanModel>& torchtitan_models() {
  static const std::vector<TorchtitanModel> kModels{
      {"llama3", "8B", "llama-3.1-8b"}, {"llama3", "70B", "llama-3.1-70b"}, {"llama3", "405B", "llama-3.1-405b"},
      {"qwen3", "0.6B", "qwen3-0.6b"},  {"qwen3", "1.7B", "qwen3-1.7b"},    {"qwen3", "4B", "qwen3-4b"},
      {"qwen3", "8B", "qwen3-8b"},      {"qwen3", "14B", "qwen3-14b"},      {"qwen3", "32B", "qwen3-32b"},
      {"llama2", "7B", "llama-2-7b"},   {"llama2", "13B", "llama-2-13b"},   {"llama2", "70B", "llama-2-70b"}};
  return kModels;
}

std::string preset_of(const std::string& name, const std::string& flavor) {
  for (const TorchtitanModel& m : torchtitan_models())
    if (lower(name) == m.name && lower(flavor) == lower(m.flavor)) return m.preset;
  return "";
}

}  // namespace plimsoll
