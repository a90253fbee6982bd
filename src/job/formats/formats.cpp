#include "job/formats/format.h"
#include "job/formats/readers.h"
#include "util/text.h"

namespace plimsoll {

const std::vector<Format>& formats() {
  static const std::vector<Format> kFormats{
      {"hf_config", "config.json of transformers", Rank::model, matches_hf_config, read_hf_config},
      {"ai_toolkit", "the AI Toolkit's YAML", Rank::trainer, matches_ai_toolkit, read_ai_toolkit},
      {"stdiff", "STDiff's YAML, or train_stdiff.py", Rank::trainer, matches_stdiff, read_stdiff},
      {"fsdm", "main_jax.py of few-shot diffusion models", Rank::trainer, matches_fsdm, read_fsdm},
      {"gsa", "Gated-Sparse-Attention's YAML, or its training/train.py", Rank::trainer, matches_gsa, read_gsa},
      {"mamba_trainer", "mamba-recursive-model's JSON, or its train.py", Rank::trainer, matches_mamba_trainer, read_mamba_trainer},
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
