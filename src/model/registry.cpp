#include "model/registry.h"

#include <algorithm>

#include "model/families.h"

namespace plimsoll {

const std::vector<ModelEntry>& model_registry() {
  static const std::vector<ModelEntry> kModels{
      {"gemma2", {"Gemma2ForCausalLM"}, InputKind::lm, 2048, make_gemma2},
      {"gpt2", {"GPT2LMHeadModel"}, InputKind::lm, 1024, make_gpt2},
      {"gpt_neox", {"GPTNeoXForCausalLM"}, InputKind::lm, 2048, make_gpt_neox},
      {"llama", {"LlamaForCausalLM"}, InputKind::lm, 2048, make_llama},
      {"mistral", {"MistralForCausalLM"}, InputKind::lm, 2048, make_mistral},
      {"opt", {"OPTForCausalLM"}, InputKind::lm, 2048, make_opt},
      {"phi3", {"Phi3ForCausalLM"}, InputKind::lm, 2048, make_phi3},
      {"qwen2", {"Qwen2ForCausalLM"}, InputKind::lm, 2048, make_qwen2},
      {"qwen3", {"Qwen3ForCausalLM"}, InputKind::lm, 2048, make_qwen3},
  };
  return kModels;
}

const ModelEntry* find_model(const std::string& name) {
  for (const ModelEntry& e : model_registry())
    if (e.name == name || std::find(e.classes.begin(), e.classes.end(), name) != e.classes.end()) return &e;
  return nullptr;
}

}  // namespace plimsoll
