#include "model/registry.h"

#include <algorithm>

#include "model/families.h"

namespace plimsoll {

const std::vector<ModelEntry>& model_registry() {
  static const std::vector<ModelEntry> kModels{
      {"gpt2", {"GPT2LMHeadModel"}, InputKind::lm, 1024, make_gpt2},
      {"llama", {"LlamaForCausalLM"}, InputKind::lm, 2048, make_llama},
  };
  return kModels;
}

const ModelEntry* find_model(const std::string& name) {
  for (const ModelEntry& e : model_registry())
    if (e.name == name || std::find(e.classes.begin(), e.classes.end(), name) != e.classes.end()) return &e;
  return nullptr;
}

}  // namespace plimsoll
