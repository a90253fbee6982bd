#include "job/formats/format.h"
#include "job/formats/readers.h"
#include "util/text.h"

namespace plimsoll {

const std::vector<Format>& formats() {
  static const std::vector<Format> kFormats{
      {"peft_weights", "adapter_model.safetensors of PEFT and other adapters", Rank::adapter, matches_peft_weights, read_peft_weights},
      {"safetensors", "safetensors, the header alone", Rank::weights, matches_safetensors, read_safetensors, model_of_safetensors},
      {"safetensors_index", "model.safetensors.index.json", Rank::weights, matches_safetensors_index, name_model, model_of_safetensors},
      {"gguf", "GGUF, the header alone", Rank::weights, matches_gguf, read_safetensors, model_of_gguf},
      {"peft_adapter", "adapter_config.json of PEFT", Rank::adapter, matches_peft_adapter, read_peft_adapter},
      {"model_index", "model_index.json of diffusers", Rank::model, matches_model_index, name_model, model_of_model_index},
      {"diffusers_config", "config.json of diffusers", Rank::model, matches_diffusers_config, name_model, model_of_diffusers_config},
      {"hf_config", "config.json of transformers", Rank::model, matches_hf_config, name_model, model_of_hf_config},
      {"job", "Plimsoll's own job file, YAML or JSON", Rank::job, matches_job, read_job},
  };
  return kFormats;
}

const Format* format_of(const Document& document) {
  for (const Format& f : formats())
    if (f.matches(document)) return &f;
  return nullptr;
}

const Format* format_named(const std::string& name) {
  for (const Format& f : formats())
    if (name == f.name) return &f;
  return nullptr;
}

bool has_keys(const Document& document, std::initializer_list<std::string_view> paths) {
  for (const std::string_view path : paths) {
    const nlohmann::json* at = &document.value;
    for (const std::string& key : split_at(path, '.')) {
      if (!at->is_object() || !at->contains(key)) return false;
      at = &(*at)[key];
    }
  }
  return true;
}

}  // namespace plimsoll
