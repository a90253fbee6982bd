#include "nn/tuning.h"

#include <fmt/format.h>

#include <algorithm>

#include "util/text.h"

namespace plimsoll {

namespace {

// transformers' get_output_embeddings() in the models of the registry, which PEFT's "all-linear" and bitsandbytes leave alone.
bool is_output_head(const std::string& module) {
  for (const char* head : {"lm_head", "embed_out", "output_projection", "vocab_projector", "cls.predictions.decoder", "lm_head.decoder",
                           "predictions.decoder"})
    if (module == head) return true;
  return false;
}

// transformers 5.12 quantizers/base.py, get_keys_to_not_convert: beside tied weights and the head, the module whose weight is the
// model's last parameter. That is `score` of the decoders' classifiers; a head with a bias ends with the bias and is quantised.
// T5 keeps every `wo` (_keep_in_fp32_modules), which is the name of nothing else in the registry.
bool stays_unquantized(const std::string& module) { return is_output_head(module) || module == "score" || ends_with_name(module, "wo"); }

bool is_number(const std::string& text) {
  return !text.empty() && text.size() < 10 && text.find_first_not_of("0123456789") == std::string::npos;
}

// PEFT 0.20 tuners_utils.check_target_module_exists, r".*?\.[^.]*\.(\d+)\.": the first number that follows a list's name.
std::optional<int64_t> layer_number(const std::string& module, const std::string& list) {
  const std::vector<std::string> parts = split_at(module, '.');
  for (size_t i = 1; i + 2 < parts.size(); ++i)
    if ((list.empty() || parts[i] == list) && is_number(parts[i + 1])) return std::stoll(parts[i + 1]);
  return std::nullopt;
}

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

// The names there are, and the nearest of them first.
std::string names_hint(const std::string& asked, const std::set<std::string>& modules) {
  std::set<std::string> shorter;
  for (const std::string& module : modules) shorter.insert(short_name(module));
  const std::vector<std::string> names = nearest_first(asked, {shorter.begin(), shorter.end()});
  const std::string hint = did_you_mean(asked, names);
  return (hint.starts_with("known") ? "there are: " : hint + " There are: ") + join(names, ", ");
}

}  // namespace

const std::vector<std::string>& DefaultTargets::of(AdapterKind kind) const {
  if (kind == AdapterKind::ia3) return ia3;
  return kind == AdapterKind::ln_tuning ? ln_tuning : lora;
}

Tuning::Tuning(const TuningSettings& s, const std::string& family, const DefaultTargets& defaults)
    : adapter_(s.adapter), quantization_(s.quantization) {
  frozen_.names = s.frozen;
  trainable_.names = s.trainable;
  active_ = adapter_ || quantization_ || !s.frozen.empty() || !s.trainable.empty();
  if (quantization_) skipped_.names = quantization_->skip_modules;
  if (!adapter_) return;
  ModuleNames& targets = adapter_->target_modules;
  if (targets.empty()) targets.names = defaults.of(adapter_->kind);
  if (targets.empty())
    throw Error(fmt::format("[{}] PEFT has no default target_modules for {}", to_string(adapter_->kind), family),
                "give target_modules, e.g. all-linear");
  targets_.names = targets.names;
  if (!targets.pattern.empty()) target_pattern_ = NamePattern(targets.pattern);
  if (!adapter_->exclude_modules.pattern.empty()) excluded_pattern_ = NamePattern(adapter_->exclude_modules.pattern);
  feedforward_ = adapter_->feedforward_modules.value_or(ModuleNames{});
  if (!feedforward_.pattern.empty()) feedforward_pattern_ = NamePattern(feedforward_.pattern);
  if (!adapter_->feedforward_modules) feedforward_.names = defaults.feedforward;
  for (const auto& [key, rank] : adapter_->rank_pattern) rank_patterns_.emplace_back(key, NamePattern("(?:.*\\.)?(?:" + key + ")"));
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

// PEFT 0.20 utils/other.py, _set_trainable: the names of modules to save are plain endings.
std::string Tuning::saved_root(const std::string& module) {
  if (saved_.names.empty()) return "";
  std::string root;
  for (const std::string& parent : with_parents(module))
    if (any(saved_, parent, [](const std::string& m, const std::string& name) { return m.ends_with(name); })) root = parent;
  return root;
}

std::string Tuning::copied_root(const std::string& module) {
  if (std::string root = saved_root(module); !root.empty()) return root;
  return adapter_ && adapter_->kind == AdapterKind::ln_tuning && is_target(module, false) ? module : "";
}

bool Tuning::trains(const std::string& module, std::string_view parameter) {
  modules_.insert(module);
  const bool kept_frozen = any(frozen_, module, is_within) && !adapter_;  // get_peft_model decides anew
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
  const ModuleNames& targets = adapter_->target_modules;
  bool hit = false;
  if (targets.all_linear) {
    hit = linear && !is_output_head(module);
  } else if (targets.pattern.empty()) {
    hit = any(targets_, module, ends_with_name) && is_chosen_layer(module);
  } else {
    hit = target_pattern_.matches(module);
    pattern_found_ |= hit;
  }
  hit = hit && !is_excluded(module) && !is_saved(module);
  adapted_ |= hit;
  return hit;
}

bool Tuning::is_excluded(const std::string& module) const {
  const std::vector<std::string>& names = adapter_->exclude_modules.names;
  return excluded_pattern_.matches(module) ||
         std::any_of(names.begin(), names.end(), [&](const std::string& name) { return ends_with_name(module, name); });
}

// A target that is named in full is not asked for its number.
bool Tuning::is_chosen_layer(const std::string& module) {
  const std::vector<int64_t>& chosen = adapter_->layers_to_transform;
  if (chosen.empty() || targets_.found.contains(module)) return true;
  std::optional<int64_t> number;
  if (adapter_->layers_pattern.empty()) number = layer_number(module, "");
  for (const std::string& list : adapter_->layers_pattern)
    if (!number) number = layer_number(module, list);
  if (!number) return false;
  layer_numbers_.insert(*number);
  return std::find(chosen.begin(), chosen.end(), *number) != chosen.end();
}

// PEFT 0.20 utils/other.py, get_pattern_key, takes the first key that matches; job files keep no order.
int64_t Tuning::rank_of(const std::string& module) {
  const std::string* by = nullptr;
  for (const auto& [key, pattern] : rank_patterns_) {
    if (!pattern.matches(module)) continue;
    ranks_found_.insert(key);
    if (by && adapter_->rank_pattern.at(*by) != adapter_->rank_pattern.at(key))
      throw Error(fmt::format("[rank_pattern] '{}' and '{}' both match {}", *by, key, module), "let one pattern match a layer");
    by = &key;
  }
  return by ? adapter_->rank_pattern.at(*by) : adapter_->r;
}

const AdapterSettings* Tuning::adapter_of(const std::string& module, bool linear) {
  if (!adapter_ || adapter_->kind == AdapterKind::ln_tuning) return nullptr;
  layers_.insert(module);
  if (!is_target(module, linear)) return nullptr;
  if (rank_patterns_.empty()) return &*adapter_;
  AdapterSettings& ranked = by_rank_.try_emplace(rank_of(module), *adapter_).first->second;
  ranked.r = rank_of(module);
  return &ranked;
}

const QuantizationSettings* Tuning::quantization_of(const std::string& module) {
  if (!quantization_ || any(skipped_, module, is_within) || stays_unquantized(module)) return nullptr;
  const bool saved = is_saved(module);
  if (!saved && !trains(module, "weight")) return &*quantization_;
  throw Error(fmt::format("[{}] {} is quantised, and a weight in {} has no gradient", saved ? "modules_to_save" : "trainable", module,
                          quantization_->type),
              fmt::format("name '{}' in quantization's skip_modules too, or put an adapter on it", short_name(module)));
}

bool Tuning::is_feedforward(const std::string& module) const {
  if (feedforward_pattern_.matches(module)) return true;
  return std::any_of(feedforward_.names.begin(), feedforward_.names.end(), [&](const std::string& n) { return ends_with_name(module, n); });
}

void Tuning::require_found(const Wanted& wanted, const char* setting, const std::set<std::string>& known, const char* what) {
  for (const std::string& name : wanted.names)
    if (!wanted.found.contains(name)) throw Error(fmt::format("[{}] no {} is called '{}'", setting, what, name), names_hint(name, known));
}

void Tuning::require_layers_found() const {
  for (int64_t number : adapter_->layers_to_transform) {
    if (layer_numbers_.contains(number)) continue;
    if (layer_numbers_.empty())
      throw Error(
          fmt::format("[layers_to_transform] {}: no target is in a numbered list '{}'", number, join(adapter_->layers_pattern, ", ")),
          "leave layers_pattern out, or name the list, e.g. layers");
    throw Error(fmt::format("[layers_to_transform] no target is in layer {}", number),
                fmt::format("targets are in layers {} to {}", *layer_numbers_.begin(), *layer_numbers_.rbegin()));
  }
  for (const auto& [key, pattern] : rank_patterns_)
    if (!ranks_found_.contains(key))
      throw Error(fmt::format("[rank_pattern] '{}' matches no layer that has an adapter", key), names_hint(key, layers_));
}

void Tuning::require_all_names_found() const {
  if (!active_) return;
  require_found(frozen_, "frozen", modules_);
  require_found(trainable_, "trainable", modules_);
  require_found(skipped_, "quantization skip_modules", modules_);
  if (!adapter_) return;
  const bool copied = adapter_->kind == AdapterKind::ln_tuning;
  const std::set<std::string>& candidates = copied ? modules_ : layers_;
  require_found(targets_, "target_modules", candidates, copied ? "module" : "linear layer or embedding");
  Wanted saved = saved_;
  if (adapter_->classifier_is_saved) saved.names = adapter_->modules_to_save;  // of PEFT's two names a model has one
  require_found(saved, "modules_to_save", modules_);
  const std::string& pattern = adapter_->target_modules.pattern;
  if (!pattern.empty() && !pattern_found_)
    throw Error(fmt::format("[target_modules] no module matches '{}'", pattern), names_hint(pattern, candidates));
  require_layers_found();
  if (!adapted_)
    throw Error(
        fmt::format("[{}] no target of '{}' is left to put an adapter on", to_string(adapter_->kind), to_string(adapter_->target_modules)),
        "exclude_modules and modules_to_save keep adapters out: take names out of them");
}

}  // namespace plimsoll
