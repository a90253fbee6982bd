// What sits on a linear layer and is trained in its place. One kind a file (lora.cpp, lokr.cpp, ia3.cpp), listed in
// make_adapter; nn/tuning.h says which layers get one.
#pragma once

#include "nn/layers.h"

namespace plimsoll {

class Adapter {
 public:
  virtual ~Adapter() = default;
  // The layer's result with what the adapter makes of it.
  virtual Tensor operator()(const DenseLayer& layer, const Tensor& x) const = 0;
};

std::unique_ptr<Adapter> make_adapter(DenseLayer& layer, const AdapterSettings& settings);
// Throws for a kind that has none for embeddings.
std::unique_ptr<LoraEmbedding> make_lora_embedding(Embedding& layer, const AdapterSettings& settings);

// PEFT 0.20 tuners_utils.py: adapters take the type of a floating base weight (_move_adapter_to_device_of_base_layer), and
// half types become fp32 unless autocast_adapter_dtype is off (cast_adapter_dtype).
inline DType adapter_dtype(const AdapterSettings& settings, const Tensor& base_weight) {
  return settings.fp32 || !is_floating(base_weight.dtype()) ? DType::float32 : base_weight.dtype();
}

// A parameter of an adapter and its name: "lora_A.default".
struct AdapterParameter : Module {
  AdapterParameter(Module& layer, std::string_view name, const Dims& sizes, DType dtype)
      : Module(layer, name), weight(parameter("weight", sizes, dtype, true)) {}
  Tensor weight;
};

}  // namespace plimsoll
