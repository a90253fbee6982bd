#include "ops/upsample.h"

#include "ops/autocast.h"

namespace plimsoll {

namespace {

// saves nothing but sizes; the result has the memory format of the input, the gradient is contiguous. On autocast's fp32 list.
Tensor upsample(const char* name, const char* backward_name, const Tensor& input, int64_t height, int64_t width) {
  const Tensor x = autocast_fp32(input);
  Op op(x.tape(), name, {&x});
  const Dims sizes{x.size(0), x.size(1), height, width};
  const bool channels_last = !x.is_contiguous() && is_channels_last(x.sizes(), x.strides());
  Tensor out = empty_strided(x.tape(), sizes, channels_last ? channels_last_strides(sizes) : contiguous_strides(sizes), x.dtype());
  return op.finish(std::move(out), [backward_name, before = x.sizes()](Tensors& g, Needs) {
    Op op(g[0].tape(), backward_name, {});
    return Tensors{empty(g[0].tape(), before, g[0].dtype())};
  });
}

}  // namespace

Tensor upsample_bicubic2d(const Tensor& x, int64_t height, int64_t width) {
  return upsample("upsample_bicubic2d", "upsample_bicubic2d_backward", x, height, width);
}

Tensor upsample_nearest2d(const Tensor& x, int64_t height, int64_t width) {
  return upsample("upsample_nearest2d", "upsample_nearest2d_backward", x, height, width);
}

}  // namespace plimsoll
