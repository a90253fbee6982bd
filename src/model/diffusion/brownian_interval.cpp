#include "model/diffusion/brownian_interval.h"

#include "ops/pointwise.h"

namespace plimsoll {

BrownianInterval::BrownianInterval(Tape& tape, double t0, double t1, const Dims& size, DType dtype)
    : BrownianPath(t0, t1), tape_(tape), size_(size), dtype_(dtype) {
  Tensor whole = mul_scalar(noise());
  begin(std::move(whole), mul_scalar(noise()));
}

Tensor BrownianInterval::noise() { return filled(tape_, "randn", size_, dtype_); }

Tensor BrownianInterval::halved(const Interval& half, const Tensor& whole) {
  Tensor mean = mul_scalar(whole);
  mean = mul_scalar(mean);
  const Tensor random = noise();
  Tensor left = mul_scalar(random);
  left = add(mean, left);
  return half.is_left ? left : sub(whole, left);
}

Tensor BrownianInterval::sum(const Tensor& a, const Tensor& b) { return add(a, b); }

}  // namespace plimsoll
