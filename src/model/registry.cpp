#include "model/registry.h"

#include <algorithm>

#include "model/families.h"

namespace plimsoll {

const std::vector<ModelEntry>& model_registry() {
  static const std::vector<ModelEntry> kModels{
      {"gemma2", {"Gemma2ForCausalLM"}, InputKind::lm, 2048, make_gemma2},
      {"gemma2-classifier", {"Gemma2ForSequenceClassification"}, InputKind::cls, 2048, make_gemma2_classifier},
      {"gpt2", {"GPT2LMHeadModel"}, InputKind::lm, 1024, make_gpt2},
      {"gpt2-classifier", {"GPT2ForSequenceClassification"}, InputKind::cls, 1024, make_gpt2_classifier},
      {"gpt_neox", {"GPTNeoXForCausalLM"}, InputKind::lm, 2048, make_gpt_neox},
      {"gpt_neox-classifier", {"GPTNeoXForSequenceClassification"}, InputKind::cls, 2048, make_gpt_neox_classifier},
      {"llama", {"LlamaForCausalLM"}, InputKind::lm, 2048, make_llama},
      {"llama-classifier", {"LlamaForSequenceClassification"}, InputKind::cls, 2048, make_llama_classifier},
      {"mistral", {"MistralForCausalLM"}, InputKind::lm, 2048, make_mistral},
      {"mistral-classifier", {"MistralForSequenceClassification"}, InputKind::cls, 2048, make_mistral_classifier},
      {"opt", {"OPTForCausalLM"}, InputKind::lm, 2048, make_opt},
      {"opt-classifier", {"OPTForSequenceClassification"}, InputKind::cls, 2048, make_opt_classifier},
      {"phi3", {"Phi3ForCausalLM"}, InputKind::lm, 2048, make_phi3},
      {"phi3-classifier", {"Phi3ForSequenceClassification"}, InputKind::cls, 2048, make_phi3_classifier},
      {"qwen2", {"Qwen2ForCausalLM"}, InputKind::lm, 2048, make_qwen2},
      {"qwen2-classifier", {"Qwen2ForSequenceClassification"}, InputKind::cls, 2048, make_qwen2_classifier},
      {"qwen3", {"Qwen3ForCausalLM"}, InputKind::lm, 2048, make_qwen3},
      {"qwen3-classifier", {"Qwen3ForSequenceClassification"}, InputKind::cls, 2048, make_qwen3_classifier},
  };
  return kModels;
}

const ModelEntry* find_model(const std::string& name) {
  for (const ModelEntry& e : model_registry())
    if (e.name == name || std::find(e.classes.begin(), e.classes.end(), name) != e.classes.end()) return &e;
  return nullptr;
}

}  // namespace plimsoll
