#include "nn/tuning.h"

#include <fmt/format.h>

#include <algorithm>

#include "util/text.h"

namespace plimsoll {

namespace {

// transformers' get_output_embeddings(), which PEFT's "all-linear" and bitsandbytes leave alone.
bool is_output_head(const std::string& module) { return module == "lm_head" || module == "embed_out"; }

// "q_proj" of "model.layers.3.self_attn.q_proj": what is enough to write.
std::string short_name(const std::string& module) {
  const size_t dot = module.rfind('.');
  return dot == std::string::npos ? module : module.substr(dot + 1);
}

// PEFT 0.20 tuners_utils.check_target_module_exists keeps adapters out of anything inside a module to save.
bool is_within(const std::string& module, const std::string& name) {
  for (const std::string& m : with_parents(module))
    if (ends_with_name(m, name)) return true;
  return false;
}

// PEFT 0.20 utils/other.py, _set_trainable: the names of modules to save are plain endings.
bool parent_ends_with(const std::string& module, const std::string& name) {
  for (const std::string& m : with_parents(module))
    if (m.ends_with(name)) return true;
  return false;
}

// The names there are, and the nearest of them first.
std::string names_hint(const std::string& asked, const std::set<std::string>& modules) {
  std::set<std::string> shorter;
  for (const std::string& module : modules) shorter.insert(short_name(module));
  const std::vector<std::string> names(shorter.begin(), shorter.end());
  const std::string hint = did_you_mean(asked, names);
  return hint.starts_with("known") ? hint : hint + " There are: " + join(names, ", ");
}

}  // namespace

Tuning::Tuning(const TuningSettings& s, const std::string& family) : adapter_(s.adapter), quantization_(s.quantization) {
  frozen_.names = s.frozen;
  trainable_.names = s.trainable;
  active_ = adapter_ || quantization_ || !s.frozen.empty() || !s.trainable.empty();
  if (quantization_) skipped_.names = quantization_->skip_modules;
  if (!adapter_) return;
  ModuleNames& targets = adapter_->target_modules;
  if (targets.empty()) targets.names = default_targets(adapter_->kind, family);
  if (targets.empty())
    throw Error(fmt::format("[{}] PEFT has no default target_modules for {}", to_string(adapter_->kind), family),
                "give target_modules, e.g. all-linear");
  targets_.names = targets.names;
  if (!targets.pattern.empty()) target_pattern_ = NamePattern(targets.pattern);
  if (!adapter_->exclude_modules.pattern.empty()) excluded_pattern_ = NamePattern(adapter_->exclude_modules.pattern);
  feedforward_ = adapter_->feedforward_modules.value_or(ModuleNames{});
  if (!feedforward_.pattern.empty()) feedforward_pattern_ = NamePattern(feedforward_.pattern);
  if (!adapter_->feedforward_modules) feedforward_.names = default_feedforward(family);
  saved_.names = adapter_->modules_to_save;
  if (adapter_->classifier_is_saved) saved_.names.insert(saved_.names.end(), {"classifier", "score"});
}

bool Tuning::any(Wanted& wanted, const std::string& module, Match match) {
  bool hit = false;
  for (const std::string& name : wanted.names) {
    if (!match(module, name)) continue;
    wanted.found.insert(name);
    hit = true;
  }
  return hit;
}

bool Tuning::is_saved(const std::string& module) { return !saved_.names.empty() && any(saved_, module, parent_ends_with); }

bool Tuning::copies(const std::string& module) {
  if (is_saved(module)) return true;
  return adapter_ && adapter_->kind == AdapterKind::ln_tuning && is_target(module, false);
}

bool Tuning::trains(const std::string& module, std::string_view parameter) {
  modules_.insert(module);
  const bool kept_frozen = any(frozen_, module, is_within);
  if (!trainable_.names.empty() && any(trainable_, module, is_within)) return !kept_frozen;
  if (kept_frozen || !trainable_.names.empty()) return false;
  if (!adapter_) return !quantization_;
  if (parameter != "bias") return false;
  if (adapter_->bias == BiasTraining::adapted) return is_target(module, true);
  return adapter_->bias == BiasTraining::all;
}

bool Tuning::trains_tied(const std::string& module, std::string_view parameter, bool already) {
  const bool here = trains(module, parameter);
  return trainable_.names.empty() ? already && here : already || here;
}

// PEFT 0.20 tuners_utils.check_target_module_exists and _maybe_include_all_linear_layers.
bool Tuning::is_target(const std::string& module, bool linear) {
  const ModuleNames& excluded = adapter_->exclude_modules;
  if (excluded_pattern_.matches(module)) return false;
  for (const std::string& name : excluded.names)
    if (ends_with_name(module, name)) return false;
  if (is_saved(module)) return false;
  if (adapter_->target_modules.all_linear) return linear && !is_output_head(module);
  if (adapter_->target_modules.pattern.empty()) return any(targets_, module, ends_with_name);
  const bool hit = target_pattern_.matches(module);
  pattern_found_ |= hit;
  return hit;
}

const AdapterSettings* Tuning::adapter_of(const std::string& module, bool linear) {
  if (!adapter_ || adapter_->kind == AdapterKind::ln_tuning) return nullptr;
  layers_.insert(module);
  return is_target(module, linear) ? &*adapter_ : nullptr;
}

const QuantizationSettings* Tuning::quantization_of(const std::string& module) {
  if (!quantization_ || is_output_head(module) || is_saved(module)) return nullptr;
  return any(skipped_, module, is_within) ? nullptr : &*quantization_;
}

bool Tuning::is_feedforward(const std::string& module) const {
  if (feedforward_pattern_.matches(module)) return true;
  return std::any_of(feedforward_.names.begin(), feedforward_.names.end(), [&](const std::string& n) { return ends_with_name(module, n); });
}

void Tuning::require_found(const Wanted& wanted, const char* setting, const std::set<std::string>& known) {
  for (const std::string& name : wanted.names)
    if (!wanted.found.contains(name)) throw Error(fmt::format("[{}] no module is called '{}'", setting, name), names_hint(name, known));
}

void Tuning::require_all_names_found() const {
  if (!active_) return;
  require_found(frozen_, "frozen", modules_);
  require_found(trainable_, "trainable", modules_);
  require_found(skipped_, "quantization skip_modules", modules_);
  if (!adapter_) return;
  const std::set<std::string>& candidates = adapter_->kind == AdapterKind::ln_tuning ? modules_ : layers_;
  require_found(targets_, "target_modules", candidates);
  Wanted saved = saved_;
  if (adapter_->classifier_is_saved) saved.names = adapter_->modules_to_save;  // of PEFT's two names a model has one
  require_found(saved, "modules_to_save", modules_);
  const std::string& pattern = adapter_->target_modules.pattern;
  if (!pattern.empty() && !pattern_found_)
    throw Error(fmt::format("[target_modules] no module matches '{}'", pattern), names_hint(pattern, candidates));
}

}  // namespace plimsoll
