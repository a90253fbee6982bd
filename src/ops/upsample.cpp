#include "ops/upsample.h"

namespace plimsoll {

// saves nothing but sizes; the result has the memory format of the input, the gradient is contiguous
Tensor upsample_bicubic2d(const Tensor& x, int64_t height, int64_t width) {
  Op op(x.tape(), "upsample_bicubic2d", {&x});
  const Dims sizes{x.size(0), x.size(1), height, width};
  const bool channels_last = !x.is_contiguous() && is_channels_last(x.sizes(), x.strides());
  Tensor out = empty_strided(x.tape(), sizes, channels_last ? channels_last_strides(sizes) : contiguous_strides(sizes), x.dtype());
  return op.finish(std::move(out), [before = x.sizes()](Tensors& g, Needs) {
    Op op(g[0].tape(), "upsample_bicubic2d_backward", {});
    return Tensors{empty(g[0].tape(), before, g[0].dtype())};
  });
}

// saves nothing but sizes; both results are contiguous
Tensor upsample_linear1d(const Tensor& x, int64_t length) {
  Op op(x.tape(), "upsample_linear1d", {&x});
  return op.finish(empty(x.tape(), {x.size(0), x.size(1), length}, x.dtype()), [before = x.sizes()](Tensors& g, Needs) {
    Op op(g[0].tape(), "upsample_linear1d_backward", {});
    return Tensors{empty(g[0].tape(), before, g[0].dtype())};
  });
}

}  // namespace plimsoll
