// LoRA and DoRA as PEFT computes them: base(x) + B(A(dropout(x))) * scaling, with adapters that may be in another type
// than the base.
#pragma once

#include "nn/adapter.h"

namespace plimsoll {

class Lora : public Adapter {
 public:
  Lora(DenseLayer& layer, const AdapterSettings& settings);
  Tensor operator()(const DenseLayer& layer, const Tensor& x) const override;

 protected:
  static Tensor project(const AdapterParameter& p, const Tensor& x);
  // result + what the adapter adds, for an input in the adapter's type.
  virtual Tensor add_delta(const DenseLayer& layer, const Tensor& x, const Tensor& result) const;
  // The same on a quantised base, with what is added (LoRA) or the sum (DoRA) cast when a type is given.
  virtual Tensor add_converted(const DenseLayer& layer, const Tensor& x, const Tensor& result, std::optional<DType> dtype) const;

  double dropout_;
  AdapterParameter lora_A_, lora_B_;

 private:
  Tensor delta(const Tensor& x) const;
  Tensor on_plain(const DenseLayer& layer, const Tensor& x) const;
  Tensor on_quantized(const DenseLayer& layer, const Tensor& x) const;
};

// The length of every row of the weight is a parameter; that of base and adapter together is computed anew in each forward.
class Dora : public Lora {
 public:
  Dora(DenseLayer& layer, const AdapterSettings& settings);

 protected:
  Tensor add_delta(const DenseLayer& layer, const Tensor& x, const Tensor& result) const override;
  Tensor add_converted(const DenseLayer& layer, const Tensor& x, const Tensor& result, std::optional<DType> dtype) const override;

 private:
  Tensor lora_weight() const;
  Tensor weight_norm(const Tensor& weight, const Tensor& lora_weight) const;
  Tensor dora(const DenseLayer& layer, const Tensor& x, const Tensor& base_result) const;

  AdapterParameter lora_magnitude_vector_;
};

// An embedding's: a look-up in a table of r columns, times B.
class LoraEmbedding {
 public:
  LoraEmbedding(Embedding& layer, const AdapterSettings& settings);
  Tensor operator()(const Embedding& layer, Tensor result, const Tensor& ids) const;  // `result`: of the embedding alone

 private:
  AdapterParameter lora_embedding_A_, lora_embedding_B_;
};

}  // namespace plimsoll
