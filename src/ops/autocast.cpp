#include "ops/autocast.h"

#include "ops/reshape.h"

namespace plimsoll {

Tensor autocast_low(const Tensor& t) {
  if (!t || !t.tape().autocast || !is_floating(t.dtype()) || t.dtype() == DType::float64) return t;
  const DType low = *t.tape().autocast;
  if (t.dtype() == low) return t;
  Parameter* p = t.parameter();
  const bool cacheable = p && t.dtype() == DType::float32 && t.requires_grad();  // only leaves have one
  if (!cacheable) return to(t, low);
  if (!p->low_precision) {
    t.tape().remember_cast(*p, to(t, low));
    // A leaf that is no parameter lives in its node, which may go before autocast's context ends: the cast stays, the leaf's memory does
    // not.
    p->accumulate = t.body().grad_fn ? t.body().grad_fn : p->accumulate;
    if (t.body().grad_fn && !t.tape().grad_enabled) p->value.reset();
  }
  return p->low_precision;
}

Tensor autocast_fp32(const Tensor& t) {
  if (!t || !t.tape().autocast || !is_half(t.dtype())) return t;
  return to(t, DType::float32);
}

}  // namespace plimsoll
