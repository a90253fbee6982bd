#include "ops/pool.h"

#include "ops/reduce.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

// at::native::pooling_output_shape
int64_t out_length(int64_t in, int64_t kernel, int64_t stride, int64_t pad, bool ceil_mode) {
  const int64_t room = in + 2 * pad - kernel + (ceil_mode ? stride - 1 : 0);
  if (room < 0) return 0;
  int64_t out = room / stride + 1;
  if (ceil_mode && (out - 1) * stride >= in + pad) --out;  // the last window must start inside the image
  return out;
}

Dims output_sizes(const char* op, const Tensor& x, const Pool2dArgs& a) {
  const Dims sizes{x.size(0), x.size(1), out_length(x.size(2), a.kernel_h, a.stride_h, a.pad_h, a.ceil_mode),
                   out_length(x.size(3), a.kernel_w, a.stride_w, a.pad_w, a.ceil_mode)};
  if (sizes[2] < 1 || sizes[3] < 1)
    throw Error(std::string("[") + op + "] nothing is left of an input of " + to_string(x.sizes()), "use larger images");
  return sizes;
}

// Pools keep the memory format of their input (suggest_memory_format).
Tensor result(const Tensor& x, const Dims& sizes, DType dtype) {
  const bool channels_last = is_channels_last(x.sizes(), x.strides());
  return empty_strided(x.tape(), sizes, channels_last ? channels_last_strides(sizes) : contiguous_strides(sizes), dtype);
}

// saves self and the int64 indices
Tensor max_pool(const char* name, const char* backward_name, const Tensor& x, const Dims& sizes) {
  Op op(x.tape(), name, {&x});
  Saved self = op.save(x);
  Tensor out = result(x, sizes, x.dtype());
  const Tensor positions = result(x, sizes, DType::int64);
  Saved indices = op.save(positions);
  return op.finish(out, [self = std::move(self), indices = std::move(indices), backward_name](Tensors&, Needs) {
    const Tensor x = self.unpack(), positions = indices.unpack();
    Op op(x.tape(), backward_name, {});
    return Tensors{result(x, x.sizes(), x.dtype())};
  });
}

// saves self
Tensor avg_pool(const char* name, const char* backward_name, const Tensor& x, const Dims& sizes) {
  Op op(x.tape(), name, {&x});
  Saved self = op.save(x);
  return op.finish(result(x, sizes, x.dtype()), [self = std::move(self), backward_name](Tensors&, Needs) {
    const Tensor x = self.unpack();
    Op op(x.tape(), backward_name, {});
    return Tensors{result(x, x.sizes(), x.dtype())};
  });
}

}  // namespace

Tensor max_pool2d(const Tensor& x, const Pool2dArgs& args) {
  return max_pool("max_pool2d_with_indices", "max_pool2d_with_indices_backward", x, output_sizes("max_pool2d", x, args));
}

Tensor avg_pool2d(const Tensor& x, const Pool2dArgs& args) {
  return avg_pool("avg_pool2d", "avg_pool2d_backward", x, output_sizes("avg_pool2d", x, args));
}

Tensor avg_pool1d(const Tensor& x, int64_t kernel) {
  return squeeze(avg_pool2d(unsqueeze(x, -2), {.kernel_w = kernel, .stride_w = kernel}), -2);
}

namespace {
// x.as_strided_ with channels-last strides; backward writes the gradient into zeros laid out as before
Tensor restride_channels_last(const Tensor& x) {
  Op op(x.tape(), "as_strided_", {&x});
  return op.finish(alias(x, x.sizes(), channels_last_strides(x.sizes())), [strides = x.strides()](Tensors& g, Needs) {
    Op op(g[0].tape(), "new_zeros", {});
    return Tensors{empty_strided(g[0].tape(), g[0].sizes(), strides, g[0].dtype())};
  });
}
}  // namespace

// One cell is a mean, which saves nothing.
Tensor adaptive_avg_pool2d(const Tensor& x, int64_t out_h, int64_t out_w) {
  if (out_h == 1 && out_w == 1) {
    Tensor out = mean(x, {-1, -2}, true);
    return is_channels_last(x.sizes(), x.strides()) ? restride_channels_last(out) : out;
  }
  return avg_pool("_adaptive_avg_pool2d", "_adaptive_avg_pool2d_backward", x, {x.size(0), x.size(1), out_h, out_w});
}

Tensor adaptive_max_pool2d(const Tensor& x, int64_t out_h, int64_t out_w) {
  return max_pool("adaptive_max_pool2d", "adaptive_max_pool2d_backward", x, {x.size(0), x.size(1), out_h, out_w});
}

}  // namespace plimsoll
