#include "model/registry.h"

#include <algorithm>

#include "model/families.h"

namespace plimsoll {

const std::vector<ModelEntry>& model_registry() {
  static const std::vector<ModelEntry> kModels{
      {"gpt2", {"GPT2LMHeadModel"}, InputKind::lm, 1024, make_gpt2},
      {"llama", {"LlamaForCausalLM"}, InputKind::lm, 2048, make_llama},
      {"bert", {"BertForMaskedLM"}, InputKind::lm, 512, make_bert},
      {"bert-classifier", {"BertForSequenceClassification"}, InputKind::cls, 512, make_bert_classifier},
      {"roberta", {"RobertaForMaskedLM"}, InputKind::lm, 512, make_roberta},
      {"roberta-classifier", {"RobertaForSequenceClassification"}, InputKind::cls, 512, make_roberta_classifier},
      {"t5", {"T5ForConditionalGeneration"}, InputKind::lm, 512, make_t5},
      {"vit", {"ViTForImageClassification"}, InputKind::image, 224, make_vit},
      {"dinov2", {"Dinov2ForImageClassification"}, InputKind::image, 224, make_dinov2},
  };
  return kModels;
}

const ModelEntry* find_model(const std::string& name) {
  for (const ModelEntry& e : model_registry())
    if (e.name == name || std::find(e.classes.begin(), e.classes.end(), name) != e.classes.end()) return &e;
  return nullptr;
}

}  // namespace plimsoll
