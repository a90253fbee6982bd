#include "step/deepspeed_norms.h"

#include "optim/foreach.h"

namespace plimsoll {

Tensor scalar(const char* op, DType dtype, Tape& tape) { return temporary(op, Dims{}, dtype, tape); }

Tensor scaled_loss(const Tensor& loss, std::function<void()> begin) {
  Op op(loss.tape(), "mul", {&loss});
  return op.finish(empty_like(loss), [begin = std::move(begin)](Tensors& grads, Needs) -> Tensors {
    const Tensor scaled = temporary("mul", grads[0]);
    Tensor divided = temporary("div", scaled);
    if (begin) begin();
    return {divided};
  });
}

void unscale_and_clip(bool clips, DType norm, Tape& tape) {
  if (!clips) return;
  Tensor clip;
  for (const char* op : {"div", "add", "div", "clamp"}) clip = scalar(op, norm, tape);
  const Tensor scale = scalar("mul", norm, tape);
  const Tensor inverse = rdiv(scale);
}

}  // namespace plimsoll
