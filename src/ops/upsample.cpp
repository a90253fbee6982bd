#include "ops/upsample.h"

#include "ops/autocast.h"
#include "ops/memory_format.h"

namespace plimsoll {

namespace {

// In the memory format of another tensor.
Tensor formatted_like(const Tensor& t, const Dims& sizes) {
  const bool channels_last = !t.is_contiguous() && is_channels_last(t.sizes(), t.strides());
  return empty_strided(t.tape(), sizes, channels_last ? channels_last_strides(sizes) : contiguous_strides(sizes), t.dtype());
}

Tensor contiguous_like(const Tensor& t, const Dims& sizes) { return empty(t.tape(), sizes, t.dtype()); }

// saves nothing but sizes; the result has the memory format of the input. On autocast's fp32 list.
Tensor upsample(const char* name, const char* backward_name, const Tensor& input, int64_t height, int64_t width,
                Tensor (*gradient_like)(const Tensor&, const Dims&)) {
  const Tensor x = autocast_fp32(input);
  Op op(x.tape(), name, {&x});
  Tensor out = formatted_like(x, {x.size(0), x.size(1), height, width});
  if (x.tape().dialect.rules.upsample_makes_tables && !is_contiguous_channels_last(x)) {
    std::vector<Ref<Storage>> places;
    for (int64_t side : {height, width})
      for (int64_t each : {int64_t{8}, size_of(x.dtype())}) places.push_back(x.tape().allocate(side * each));
  }
  return op.finish(std::move(out), [backward_name, gradient_like, before = x.sizes()](Tensors& g, Needs) {
    Op op(g[0].tape(), backward_name, {});
    return Tensors{gradient_like(g[0], before)};
  });
}

}  // namespace

Tensor upsample_bicubic2d(const Tensor& x, int64_t height, int64_t width) {
  return upsample("upsample_bicubic2d", "upsample_bicubic2d_backward", x, height, width, contiguous_like);
}

Tensor upsample_nearest2d(const Tensor& x, int64_t height, int64_t width) {
  return upsample("upsample_nearest2d", "upsample_nearest2d_backward", x, height, width, formatted_like);
}

Tensor upsample_bilinear2d(const Tensor& x, int64_t height, int64_t width) {
  return upsample("upsample_bilinear2d", "upsample_bilinear2d_backward", x, height, width, formatted_like);
}

// saves nothing but sizes; both results are contiguous. On autocast's fp32 list.
Tensor upsample_linear1d(const Tensor& input, int64_t length) {
  const Tensor x = autocast_fp32(input);
  Op op(x.tape(), "upsample_linear1d", {&x});
  return op.finish(empty(x.tape(), {x.size(0), x.size(1), length}, x.dtype()), [before = x.sizes()](Tensors& g, Needs) {
    Op op(g[0].tape(), "upsample_linear1d_backward", {});
    return Tensors{empty(g[0].tape(), before, g[0].dtype())};
  });
}

}  // namespace plimsoll
