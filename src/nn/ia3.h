// IA3 as PEFT computes it: a vector scales the result of a layer, or the input of a feed-forward layer.
#pragma once

#include "nn/adapter.h"

namespace plimsoll {

class Ia3 : public Adapter {
 public:
  Ia3(DenseLayer& layer, const AdapterSettings& settings);
  Tensor operator()(const DenseLayer& layer, const Tensor& x) const override;

 private:
  bool feedforward_;
  AdapterParameter ia3_l_;
};

}  // namespace plimsoll
