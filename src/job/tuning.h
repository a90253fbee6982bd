// What of a model is trained, and how its layers are changed for it: adapters as PEFT configures them, a quantised base as
// bitsandbytes stores it, frozen modules. Plain data; nn/tuning.h acts on it.
#pragma once

#include <map>
#include <optional>

#include "job/config.h"
#include "job/module_names.h"
#include "job/problem.h"

namespace plimsoll {

enum class AdapterKind : uint8_t { lora, lokr, ia3, ln_tuning };
enum class BiasTraining : uint8_t { none, all, adapted };  // PEFT's none, all, lora_only

// PEFT's LoraConfig, LoKrConfig, IA3Config and LNTuningConfig, as far as memory depends on them.
struct AdapterSettings {
  AdapterKind kind = AdapterKind::lora;
  ModuleNames target_modules;  // empty: what PEFT takes for the family
  ModuleNames exclude_modules;
  std::vector<std::string> modules_to_save;  // trained in full: the original stays, frozen, beside a trained copy
  bool classifier_is_saved = false;          // task_type SEQ_CLS: `score` and `classifier` are among modules_to_save
  bool fp32 = true;                          // autocast_adapter_dtype: adapters of a half-precision base are in fp32
  std::vector<int64_t> layers_to_transform;  // lora, lokr: numbers of the layers that get adapters; empty: all
  std::vector<std::string> layers_pattern;   // names of the lists these numbers count in; empty: any
  int64_t r = 8;
  std::map<std::string, int64_t> rank_pattern;  // lora, lokr: r where the end of a layer's name matches the key
  double alpha = 8;                             // scales the result; for display
  double dropout = 0;
  bool use_dora = false;                           // lora
  bool ai_toolkit = false;                         // lora: computed as the AI Toolkit's modules do, not as PEFT's
  BiasTraining bias = BiasTraining::none;          // lora
  bool decompose_both = false;                     // lokr
  int64_t decompose_factor = -1;                   // lokr
  std::optional<ModuleNames> feedforward_modules;  // ia3: scaled before the layer; the others after. None: PEFT's choice
};

// transformers' BitsAndBytesConfig and peft's prepare_model_for_kbit_training, optimum-quanto's qfloat8, or the AI Toolkit's uintX.
struct QuantizationSettings {
  std::string type = "nf4";               // nf4, fp4, int8, fp8, qfloat8, uint2 to uint7
  bool double_quant = false;              // 4 bit: the scales are quantised too
  std::string compute_dtype = "bf16";     // 4 bit: bf16, fp16, fp32
  double threshold = 6.0;                 // int8: columns with larger activations are outliers; 0: none are looked for
  int64_t outliers = 0;                   // int8: how many columns of a layer's input are outliers
  std::vector<std::string> skip_modules;  // beside the output head
  bool prepare = true;                    // prepare_model_for_kbit_training: what is not quantised goes to fp32

  int bits() const { return type == "int8" || type == "fp8" || type == "qfloat8" ? 8 : 4; }
};

struct TuningSettings {
  std::optional<AdapterSettings> adapter;
  std::optional<QuantizationSettings> quantization;
  std::vector<std::string> frozen;     // modules, by (the end of) their name, that are not trained
  std::vector<std::string> trainable;  // when given, the only modules that are
};

const char* to_string(AdapterKind k);  // "lora"
AdapterKind parse_adapter_kind(const std::string& text);

// A mapping with PEFT's keys, text like "r=16,target_modules=q_proj+v_proj", {} (the defaults), or true (LoRA: r 16, all linear layers).
AdapterSettings parse_adapter(AdapterKind kind, const nlohmann::json& value);
// A mapping, or the type for short.
QuantizationSettings parse_quantization(const nlohmann::json& value);
std::vector<std::string> parse_name_list(const nlohmann::json& value, const std::string& source);

// Settings that contradict each other, or leave nothing to train.
void check(const TuningSettings& tuning, Problems& out);

nlohmann::ordered_json to_json(const AdapterSettings& a);
nlohmann::ordered_json to_json(const QuantizationSettings& q);
std::string to_string(const AdapterSettings& a);       // "LoRA r 16 on q_proj, v_proj"
std::string to_string(const QuantizationSettings& q);  // "nf4 base"

}  // namespace plimsoll
