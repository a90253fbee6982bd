#include "nn/rms_norm_fp32.h"

#include "ops/pointwise.h"
#include "ops/reduce.h"
#include "ops/reshape.h"

namespace plimsoll {

Tensor Fp32RMSNorm::operator()(const Tensor& x) const {
  Forward here(*this);
  Tensor hidden = to(x, DType::float32);
  const Tensor variance = mean(pow(hidden, 2), {-1}, true);
  {
    const Tensor scale = rsqrt(add_scalar(variance));
    hidden = mul(hidden, scale);
  }
  return to(mul(weight, hidden), x.dtype());
}

}  // namespace plimsoll
