#include "ops/log_sigmoid.h"

namespace plimsoll {

// saves the input, and a buffer of exponentials where the rules say so
Tensor log_sigmoid(const Tensor& x) {
  Op op(x.tape(), "log_sigmoid_forward", {&x});
  Saved self = op.save(x);
  Tensor out = empty_like(x);
  const bool has_buffer = x.tape().dialect.rules.log_sigmoid_saves_buffer;
  Saved buffer = op.save_if(has_buffer, has_buffer ? empty_like(x) : Tensor());
  return op.finish(out, [self = std::move(self), buffer = std::move(buffer)](Tensors& g, Needs) {
    const Tensor x = self.unpack();
    Op op(x.tape(), "log_sigmoid_backward", {});
    return Tensors{empty_like(x)};
  });
}

}  // namespace plimsoll
