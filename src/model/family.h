// A family of models: one architecture, with everything that is known about it in one object. It says what its models are called and how
// they are built, which checkpoints are published, and what adapters, parallel plans, kernels and other programs do with it. It is defined
// in the file of its architecture, as a static of NAME_family(), and registry.cpp lists it.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "job/config.h"
#include "job/input_kind.h"
#include "model/decoder/megatron_defaults.h"
#include "model/presets.h"
#include "nn/text_encoder.h"
#include "nn/tuning.h"

namespace plimsoll {

struct Family;

// One model of a family: its body with one head, or one of torchvision's variants.
struct ModelEntry {
  std::string name;                  // "llama", "llama-classifier", "resnet50"
  std::vector<std::string> classes;  // "LlamaForCausalLM"; empty for torchvision
  InputKind inputs;
  int64_t default_seq;  // tokens, or image side; 0: the size of a sample is in the configuration
  std::function<std::unique_ptr<Model>(Build&, const Config&)> make;
  MakeTextEncoder text_encoder = nullptr;  // what models of images have of it beside them; null: nothing
  const Family* family = nullptr;          // the registry sets it
};

// How a causal language model is split by transformers' plan for tensor parallelism.
struct TensorPlan {
  bool sequence = false;          // embeddings and norms can be on a part of the tokens
  bool plain_head_norms = false;  // norms of queries and keys, which no plan shards
};

// Which libraries replace its layers by kernels of their own.
struct KernelSupport {
  bool liger_loss = false;         // Liger-Kernel, transformers/monkey_patch.py, MODEL_TYPE_TO_APPLY_LIGER_FN (August 2026)
  bool liger_layers = false;       // and its layers are modelled as that library replaces them
  bool cut_cross_entropy = false;  // cut-cross-entropy (commit d42911f), transformers/patch.py, PATCH_FNS
};

// torchtitan's own code for a family (torchtitan/models).
enum class TorchtitanCode : uint8_t { none, llama, qwen3 };

// Programs beside PyTorch's training loop that can be asked about.
struct ProgramSupport {
  bool jax = false;  // its reference is written for JAX; of transformers' families every one can be asked about
  TorchtitanCode torchtitan = TorchtitanCode::none;
  std::optional<MegatronDefaults> megatron = {};  // none: Megatron-LM does not build it here
};

enum class Shrink : uint8_t { half, three_quarters, one_less, half_the_frames };

// A size of its configuration that a plan may lower; it is another training then.
struct SizeLever {
  const char* key;
  int64_t usual;  // what the family takes when the key is absent
  Shrink change;
  const char* name;  // with the new value and the old one
  const char* cost;
};

struct Family {
  std::string name;                      // "llama": the model_type, where it is from transformers
  std::string library = "transformers";  // where its Python reference is from
  std::vector<ModelEntry> models = {};   // the one of the family's name first
  std::vector<Preset> presets = {};
  DefaultTargets adapters = {};  // what PEFT targets when nothing is said; empty: it refuses
  bool kbit_training = true;     // peft's prepare_model_for_kbit_training is called for quantised weights
  std::optional<TensorPlan> tensor_plan = {};
  int64_t first_position = 0;  // of a sample's first token in the table of positions; RoBERTa's first two are of padding
  KernelSupport kernels = {};
  ProgramSupport programs = {};
  std::vector<SizeLever> levers = {};
  std::string gguf = {};  // llama.cpp's name of the architecture, where it is not the family's own

  bool is_transformers() const { return library == "transformers"; }
};

using TorchvisionBuilder = std::unique_ptr<Model> (*)(Build&, const Config&, const std::string& name);
struct TorchvisionVariant {
  const char* name;
  int64_t side = 224;  // of the images its published weights were evaluated at
};
std::vector<ModelEntry> torchvision_models(TorchvisionBuilder make, const std::vector<TorchvisionVariant>& variants);

// A class of transformers that is another one by a name of its own, but for its defaults and for what it takes no notice of.
ModelEntry copy_of(ModelEntry entry, const char* defaults, const char* forced = "{}");

}  // namespace plimsoll
