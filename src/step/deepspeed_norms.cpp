#include "step/deepspeed_norms.h"

#include "optim/foreach.h"

namespace plimsoll {

Tensor device_scalar(const char* op, DType dtype, Tape& tape) { return temporary(op, Dims{}, dtype, tape); }

void mask_infinite(const Tensor& number) {
  Tape& tape = number.tape();
  const Tensor inf = device_scalar("isinf", DType::bool_, tape), nan = device_scalar("isnan", DType::bool_, tape);
  const Tensor either = device_scalar("logical_or", DType::bool_, tape);
  const Tensor value = device_scalar("empty", DType::float32, tape);
}

Tensor scaled_loss(const Tensor& loss, std::function<void()> begin) {
  Op op(loss.tape(), "mul", {&loss});
  return op.finish(empty_like(loss), [begin = std::move(begin)](Tensors& grads, Needs) -> Tensors {
    const Tensor scaled = temporary("mul", grads[0]);
    Tensor divided = temporary("div", scaled);
    if (begin) begin();
    return {divided};
  });
}

void unscale_and_clip(DType norm, Tape& tape) {
  Tensor clip;
  for (const char* op : {"div", "add", "div", "clamp"}) clip = device_scalar(op, norm, tape);
  const Tensor scale = device_scalar("mul", norm, tape);
  const Tensor inverse = rdiv(scale);
}

}  // namespace plimsoll
