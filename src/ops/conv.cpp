#include "ops/conv.h"

#include "ops/autocast.h"

namespace plimsoll {

namespace {

int64_t out_length(int64_t in, int64_t kernel, int64_t stride, int64_t pad, int64_t dilation) {
  const int64_t room = in + 2 * pad - dilation * (kernel - 1) - 1;
  if (room < 0)
    throw Error("[conv2d] an image side of " + std::to_string(in) + " is smaller than a kernel of " + std::to_string(kernel),
                "use larger images");
  return room / stride + 1;
}

// cuDNN keeps channels-last when the input or the weight has it; the recorder has no cuDNN and answers contiguous tensors.
bool prefers_channels_last(const Tensor& x, const Tensor& weight) {
  if (x.tape().dialect.recorder) return false;
  return is_channels_last(x.sizes(), x.strides()) || is_channels_last(weight.sizes(), weight.strides());
}

Tensor result(const Tensor& like, const Dims& sizes, bool channels_last) {
  return empty_strided(like.tape(), sizes, channels_last ? channels_last_strides(sizes) : contiguous_strides(sizes), like.dtype());
}

}  // namespace

// saves input and weight; backward makes the gradients of input, weight and bias. On autocast's lower-precision list.
Tensor conv2d(const Tensor& input, const Tensor& w, const Tensor& b, const Conv2dArgs& a) {
  const Tensor bias = autocast_low(b), weight = autocast_low(w), x = autocast_low(input);
  if (x.dim() != 4 || x.size(1) != checked_mul(weight.size(1), a.groups))
    throw Error("[conv2d] input " + to_string(x.sizes()) + " does not match weight " + to_string(weight.sizes()),
                "the channels in the model's configuration do not fit together");
  const Dims sizes{x.size(0), weight.size(0), out_length(x.size(2), weight.size(2), a.stride_h, a.pad_h, a.dilation_h),
                   out_length(x.size(3), weight.size(3), a.stride_w, a.pad_w, a.dilation_w)};
  Op op(x.tape(), "convolution", {&x, &weight, &bias});
  Saved saved_x = op.save(x), saved_weight = op.save(weight);
  const bool channels_last = prefers_channels_last(x, weight);
  return op.finish(result(x, sizes, channels_last), [saved_x = std::move(saved_x), saved_weight = std::move(saved_weight), channels_last](
                                                        Tensors& g, Needs needs) {
    const Tensor x = saved_x.unpack(), weight = saved_weight.unpack();
    Op op(x.tape(), "convolution_backward", {});
    Tensors out(3);
    if (needs[0]) out[0] = result(g[0], x.sizes(), channels_last);
    if (needs[1]) out[1] = result(g[0], weight.sizes(), channels_last);
    if (needs[2]) out[2] = empty(x.tape(), {weight.size(0)}, g[0].dtype());
    return out;
  });
}

}  // namespace plimsoll
