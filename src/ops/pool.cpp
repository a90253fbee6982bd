#include "ops/pool.h"

#include "ops/reduce.h"

namespace plimsoll {

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
  if (out_h != 1 || out_w != 1)
    throw Error("[adaptive_avg_pool2d] an output of " + std::to_string(out_h) + " x " + std::to_string(out_w) + " is not known",
                "use 1 x 1");
  Tensor out = mean(x, {-1, -2}, true);
  return is_channels_last(x.sizes(), x.strides()) ? restride_channels_last(out) : out;
}

}  // namespace plimsoll
