// Every model that can be simulated: by family, by the class and model_type names of its Python reference, and by preset.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "job/job.h"
#include "nn/model.h"

namespace plimsoll {

struct ModelEntry {
  std::string name;                  // "llama", "resnet50"
  std::vector<std::string> classes;  // "LlamaForCausalLM"; empty for torchvision
  InputKind inputs;
  int64_t default_seq;  // tokens, or image side; 0: the size of a sample is in the configuration
  std::function<std::unique_ptr<Model>(Build&, const Config&)> make;
  std::string library = {};  // where its Python reference is from, when that is neither transformers nor torchvision
};

const std::vector<ModelEntry>& model_registry();
const ModelEntry* find_model(const std::string& name_or_class);  // null when unknown

}  // namespace plimsoll
