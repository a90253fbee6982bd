// Decides, module by module while a model is built, what is trained and which layers get an adapter or a quantised weight.
// Model files know nothing of it: layers (nn/layers.h) and parameters (nn/module.h) ask. Names are matched as PEFT 0.20 does.
#pragma once

#include <map>
#include <set>
#include <string>

#include "job/tuning.h"

namespace plimsoll {

// What PEFT 0.20 takes when target_modules is not given (peft/utils/constants.py,
// TRANSFORMERS_MODELS_TO_{LORA,IA3,LNTUNING}_TARGET_MODULES_MAPPING and ..._IA3_FEEDFORWARD_MODULES_MAPPING). Empty: it knows none for this
// family.
struct DefaultTargets {
  std::vector<std::string> lora = {};  // LoKr's, too
  std::vector<std::string> ia3 = {};
  std::vector<std::string> feedforward = {};  // of IA3
  std::vector<std::string> ln_tuning = {};

  const std::vector<std::string>& of(AdapterKind kind) const;
};

class Tuning {
 public:
  Tuning() = default;  // everything is trained and nothing changed
  // `family` is the model's name in the registry. Throws when no target is given and `defaults` has none.
  Tuning(const TuningSettings& settings, const std::string& family, const DefaultTargets& defaults);

  bool changes_anything() const { return active_; }
  bool has_adapter() const { return adapter_.has_value(); }

  // Whether a parameter of the model itself is trained.
  bool trains(const std::string& module, std::string_view parameter);
  // The same when the parameter has another name too, under which it is `already` trained or not.
  bool trains_tied(const std::string& module, std::string_view parameter, bool already);
  // What of a module's parents (or itself) stays as it is, frozen, beside a copy that is trained instead; empty: nothing.
  std::string copied_root(const std::string& module);
  const char* copy_name() const {
    return adapter_->kind == AdapterKind::ln_tuning ? "ln_tuning_layers.default" : "modules_to_save.default";
  }
  // Adapter of a linear layer or an embedding, with the rank it has there; null: none.
  const AdapterSettings* adapter_of(const std::string& module, bool linear);
  // Quantisation of a linear layer; null: none. Throws for a layer that is to be trained.
  const QuantizationSettings* quantization_of(const std::string& module);
  // IA3: whether the layer's input is scaled, not its result.
  bool is_feedforward(const std::string& module) const;

  // Once the model is built: throws for a name that no module had, naming those there are.
  void require_all_names_found() const;

 private:
  // Names asked for, and which of them some module had.
  struct Wanted {
    std::vector<std::string> names;
    std::set<std::string> found;
  };
  using Match = bool (*)(const std::string& module, const std::string& name);
  static bool any(Wanted& wanted, const std::string& module, Match match);
  bool is_target(const std::string& module, bool linear);
  bool is_excluded(const std::string& module) const;
  bool is_chosen_layer(const std::string& module);
  int64_t rank_of(const std::string& module);
  void require_layers_found() const;
  std::string saved_root(const std::string& module);  // empty: in no module to save
  bool is_saved(const std::string& module) { return !saved_root(module).empty(); }
  static void require_found(const Wanted& wanted, const char* setting, const std::set<std::string>& known, const char* what = "module");

  bool active_ = false;
  std::optional<AdapterSettings> adapter_;
  std::optional<QuantizationSettings> quantization_;
  NamePattern target_pattern_, excluded_pattern_, feedforward_pattern_;
  ModuleNames feedforward_;
  Wanted targets_, saved_, frozen_, trainable_, skipped_;
  bool pattern_found_ = false, adapted_ = false;
  std::vector<std::pair<std::string, NamePattern>> rank_patterns_;
  std::set<std::string> ranks_found_;           // of their keys
  std::map<int64_t, AdapterSettings> by_rank_;  // the adapter with each rank it was given
  std::set<int64_t> layer_numbers_;             // that targets have
  std::set<std::string> layers_;                // what an adapter can sit on
  std::set<std::string> modules_;               // what has parameters
};

}  // namespace plimsoll
