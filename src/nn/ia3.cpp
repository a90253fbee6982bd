#include "nn/ia3.h"

#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll {

Ia3::Ia3(DenseLayer& layer, const AdapterSettings& s)
    : feedforward_(layer.build().tuning.is_feedforward(layer.path())),
      ia3_l_(layer, "ia3_l.default", feedforward_ ? Dims{1, layer.in} : Dims{layer.out, 1}, adapter_dtype(s, layer.weight)) {}

// peft 0.20, tuners/ia3/layer.py, Linear.forward: the vector is multiplied by 1 first.
Tensor Ia3::operator()(const DenseLayer& layer, const Tensor& x) const {
  const Tensor scaling = mul_scalar(view(ia3_l_.weight, {-1}));
  if (feedforward_) {
    const Tensor input = to(x, ia3_l_.weight.dtype());
    Tensor scaled = mul(input, scaling);
    scaled = to(scaled, x.dtype());
    return layer.base(scaled);
  }
  Tensor result = layer.base(x);  // (..., out)
  const DType dtype = result.dtype();
  result = to(mul(result, scaling), dtype);
  return result;
}

}  // namespace plimsoll
