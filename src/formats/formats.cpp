#include <algorithm>
#include "formats/format.h"

#include "formats/command_line.h"
#include "formats/readers.h"
#include "util/outcome.h"
#include "util/text.h"

namespace plimsoll {

const std::vector<Format>& formats() {
  static const std::vector<Format> kFormats{
      {"peft_weights", "adapter_model.safetensors of PEFT and other adapters", Rank::adapter, matches_peft_weights, read_peft_weights},
      {"safetensors", "safetensors, the header alone", Rank::weights, matches_safetensors, read_safetensors, model_of_safetensors},
      {"safetensors_index", "model.safetensors.index.json", Rank::weights, matches_safetensors_index, name_model, model_of_safetensors},
      {"gguf", "GGUF, the header alone", Rank::weights, matches_gguf, read_safetensors, model_of_gguf},
      {"peft_adapter", "adapter_config.json of PEFT", Rank::adapter, matches_peft_adapter, read_peft_adapter, nullptr, writes_peft_adapter},
      {"model_index", "model_index.json of diffusers", Rank::model, matches_model_index, name_model, model_of_model_index},
      {"diffusers_config", "config.json of diffusers", Rank::model, matches_diffusers_config, name_model, model_of_diffusers_config},
      {"hf_config", "config.json of transformers", Rank::model, matches_hf_config, name_model, model_of_hf_config},
      {"ai_toolkit", "the AI Toolkit's YAML", Rank::trainer, matches_ai_toolkit, read_ai_toolkit, nullptr, writes_ai_toolkit},
      {"stdiff", "STDiff's YAML, or train_stdiff.py", Rank::trainer, matches_stdiff, read_stdiff, nullptr, writes_stdiff},
      {"fsdm", "main_jax.py of few-shot diffusion models", Rank::trainer, matches_fsdm, read_fsdm, nullptr, writes_fsdm},
      {"gsa", "Gated-Sparse-Attention's YAML, or its training/train.py", Rank::trainer, matches_gsa, read_gsa, nullptr, writes_gsa},
      {"mamba_trainer", "mamba-recursive-model's JSON, or its train.py", Rank::trainer, matches_mamba_trainer, read_mamba_trainer, nullptr,
       writes_mamba_trainer},
      {"accelerate", "accelerate's configuration", Rank::launcher, matches_accelerate, read_accelerate, nullptr, writes_accelerate},
      {"deepspeed", "DeepSpeed's ds_config.json", Rank::launcher, matches_deepspeed, read_deepspeed, nullptr, writes_deepspeed},
      {"axolotl", "axolotl's YAML or command", Rank::trainer, matches_axolotl, read_axolotl, nullptr, writes_axolotl},
      {"llama_factory", "LLaMA-Factory's YAML, JSON or command", Rank::trainer, matches_llama_factory, read_llama_factory, nullptr,
       writes_llama_factory},
      {"torchtune", "torchtune's recipe or tune command", Rank::trainer, matches_torchtune, read_torchtune, nullptr, writes_torchtune},
      {"torchtitan", "torchtitan's TOML or command", Rank::trainer, matches_torchtitan, read_torchtitan, nullptr, writes_torchtitan},
      {"kohya", "TOML or command of kohya's sd-scripts", Rank::trainer, matches_kohya, read_kohya, nullptr, writes_kohya},
      {"hf_training_arguments", "TrainingArguments of transformers or TRL: JSON, YAML or command", Rank::trainer,
       matches_hf_training_arguments, read_hf_training_arguments, nullptr, writes_hf_training_arguments},
      {"job", "Plimsoll's own job file, YAML or JSON", Rank::job, matches_job, read_job, nullptr, writes_job},
  };
  return kFormats;
}

const Format* format_of(const Document& document) {
  for (const Format& f : formats())
    if (f.matches(document)) return &f;
  return nullptr;
}

bool is_configuration(const std::string& path) {
  const auto has_format = [](const Document& d) { return format_of(d) != nullptr; };
  return outcome_of([&] {
           const Document document = read_document(path);
           if (document.kind != Document::Kind::text) return has_format(document);
           const std::vector<Document> commands = script_documents(document.text, document.name);
           return std::any_of(commands.begin(), commands.end(), has_format);
         })
      .value.value_or(false);
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
