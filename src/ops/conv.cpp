#include "ops/conv.h"

#include <algorithm>

#include "ops/autocast.h"
#include "ops/memory_format.h"

namespace plimsoll {

namespace {

int64_t out_length(int64_t in, int64_t kernel, int64_t stride, int64_t pad, int64_t dilation) {
  return (in + 2 * pad - dilation * (kernel - 1) - 1) / stride + 1;
}

void require_images(const char* op, const Tensor& x, const Tensor& weight) {
  if (x.dim() != 4 || weight.dim() != 4)
    throw Error(std::string("[") + op + "] input " + to_string(x.sizes()) + " and weight " + to_string(weight.sizes()) +
                    " are not both four-dimensional",
                "give images as (N, C, H, W)");
}

Dims output_sizes(const Tensor& x, const Tensor& weight, const Conv2dArgs& a) {
  require_images("conv2d", x, weight);
  if (x.size(1) != checked_mul(weight.size(1), a.groups) || weight.size(0) % a.groups != 0)
    throw Error("[conv2d] input " + to_string(x.sizes()) + " does not match weight " + to_string(weight.sizes()) + " in " +
                    std::to_string(a.groups) + " groups",
                "the channels in the model's configuration do not fit together");
  const int64_t reach_h = a.dilation_h * (weight.size(2) - 1) + 1, reach_w = a.dilation_w * (weight.size(3) - 1) + 1;
  if (x.size(2) + 2 * a.pad_h < reach_h || x.size(3) + 2 * a.pad_w < reach_w)
    throw Error("[conv2d] input " + to_string(x.sizes()) + " is smaller than the kernel " + to_string(weight.sizes()), "use larger images");
  return {x.size(0), weight.size(0), out_length(x.size(2), weight.size(2), a.stride_h, a.pad_h, a.dilation_h),
          out_length(x.size(3), weight.size(3), a.stride_w, a.pad_w, a.dilation_w)};
}

Dims transposed_sizes(const Tensor& x, const Tensor& weight, const Conv2dArgs& a) {
  require_images("conv_transpose2d", x, weight);
  if (x.size(1) != weight.size(0))
    throw Error("[conv_transpose2d] input " + to_string(x.sizes()) + " does not match weight " + to_string(weight.sizes()),
                "the channels in the model's configuration do not fit together");
  auto length = [](int64_t in, int64_t kernel, int64_t stride, int64_t pad, int64_t dilation) {
    return (in - 1) * stride - 2 * pad + dilation * (kernel - 1) + 1;
  };
  return {x.size(0), checked_mul(weight.size(1), a.groups), length(x.size(2), weight.size(2), a.stride_h, a.pad_h, a.dilation_h),
          length(x.size(3), weight.size(3), a.stride_w, a.pad_w, a.dilation_w)};
}

Dims output_sizes(const Tensor& x, const Tensor& weight, const Conv1dArgs& a) {
  if (x.dim() != 3 || weight.dim() != 3 || x.size(1) != checked_mul(weight.size(1), a.groups))
    throw Error("[conv1d] input " + to_string(x.sizes()) + " does not match weight " + to_string(weight.sizes()) + " in " +
                    std::to_string(a.groups) + " groups",
                "the channels in the model's configuration do not fit together");
  if (x.size(2) + 2 * a.padding < weight.size(2))
    throw Error("[conv1d] input " + to_string(x.sizes()) + " is shorter than the kernel " + to_string(weight.sizes()), "use longer inputs");
  return {x.size(0), weight.size(0), out_length(x.size(2), weight.size(2), a.stride, a.padding, 1)};
}

// cudnn_conv_suggest_memory_format. The recorder's build has no cuDNN: its kernels answer contiguous tensors.
bool prefers_channels_last(const Tensor& x, const Tensor& weight) {
  if (x.tape().dialect.recorder || x.dim() != 4) return false;
  return is_channels_last(x.sizes(), x.strides()) || is_channels_last(weight.sizes(), weight.strides());
}

Tensor result(const Tensor& like, const Dims& sizes, bool channels_last) {
  return empty_strided(like.tape(), sizes, channels_last ? channels_last_strides(sizes) : contiguous_strides(sizes), like.dtype());
}

// Tensor-core kernels of cuDNN read channels-last; contiguous tensors are turned around in a workspace of the call.
std::vector<Ref<Storage>> turned_around(const Tensor& x, const Tensor& w, const Tensor& y, bool channels_last) {
  Tape& tape = x.tape();
  const bool depthwise = w.size(1) == 1 && x.size(1) > 1;
  if (!tape.dialect.kernels.scratch || channels_last || depthwise) return {};
  return {tape.scratch(checked_mul(x.numel(), size_of(x.dtype())) + checked_mul(w.numel(), size_of(w.dtype())) +
                       checked_mul(y.numel(), size_of(y.dtype())))};
}

// slow_conv2d: a column for every patch of the input; a kernel of one pixel needs none.
Ref<Storage> columns(const Tensor& x, const Tensor& weight, const Tensor& y, bool strided) {
  Tape& tape = x.tape();
  if (!tape.dialect.rules.conv_makes_columns || x.dim() != 4 || (weight.size(2) == 1 && weight.size(3) == 1 && !strided)) return {};
  const int64_t patch = checked_mul(weight.size(1), weight.size(2) * weight.size(3)), places = y.size(2) * y.size(3);
  return tape.allocate(checked_mul(checked_mul(x.size(0), patch), checked_mul(places, size_of(x.dtype()))));
}

// Weights in the layout of the images.
Ref<Storage> turned_weight(const Tensor& weight, bool channels_last) {
  const bool copies =
      weight.tape().dialect.rules.conv_matches_layouts && channels_last && weight.dim() == 4 && !is_contiguous_channels_last(weight);
  return copies ? weight.tape().allocate(checked_mul(weight.numel(), size_of(weight.dtype()))) : Ref<Storage>();
}

// And gradients, in each of the two products that are made of them.
Ref<Storage> turned_gradient(const Tensor& grad, bool channels_last) {
  const bool copies = grad.tape().dialect.rules.conv_matches_layouts && grad.dim() == 4 &&
                      !(channels_last ? is_contiguous_channels_last(grad) : grad.is_contiguous());
  return copies ? grad.tape().allocate(checked_mul(grad.numel(), size_of(grad.dtype()))) : Ref<Storage>();
}

// Of each of the three products: forward, the input's gradient, the weight's. `image` is the side on which every element meets every weight
// of its channel: the result, or the input when transposed.
double product_flops(int64_t image, const Tensor& weight) {
  return 2.0 * static_cast<double>(image) * static_cast<double>(weight.numel() / std::max<int64_t>(1, weight.size(0)));
}

void count_forward(const Tensor& x, double flops) { x.tape().flops(flops, x.dtype(), Unit::convolution); }

// Of a backward op: one product for each gradient of input and weight.
void count_backward(const Op& op, const Tensor& x, const Tensor& weight, const Tensor& grad, const Needs& needs, double flops) {
  for (size_t i : {0, 1}) {
    if (!needs[i]) continue;
    op.reads(grad);
    op.reads(i == 0 ? weight : x);
    x.tape().flops(flops, x.dtype(), Unit::convolution);
  }
}

// saves input and weight; backward makes the gradients of input, weight and bias in that order. On autocast's
// lower-precision list.
template <class Args>
Tensor convolution(const Tensor& input, const Tensor& w, const Tensor& b, const Args& args,
                   Dims (*sizes_of)(const Tensor&, const Tensor&, const Args&), bool transposed = false) {
  const Tensor bias = autocast_low(b), weight = autocast_low(w), x = autocast_low(input);
  const Dims sizes = sizes_of(x, weight, args);
  Op op(x.tape(), "convolution", {&x, &weight, &bias});
  Saved saved_x = op.save(x), saved_weight = op.save(weight);
  const bool channels_last = prefers_channels_last(x, weight);
  const bool strided = sizes.size() == 4 && (sizes[2] != x.size(2) || sizes[3] != x.size(3));
  Tensor y;
  {
    const Ref<Storage> copy = turned_weight(weight, channels_last);
    const Ref<Storage> taken = columns(x, weight, alias(x, sizes, contiguous_strides(sizes)), strided);
    y = result(x, sizes, channels_last);
  }
  turned_around(x, weight, y, channels_last);
  const double flops = product_flops(transposed ? x.numel() : y.numel(), weight);
  count_forward(x, flops);
  return op.finish(std::move(y), [saved_x = std::move(saved_x), saved_weight = std::move(saved_weight), channels = sizes[1], channels_last,
                                  strided, flops](Tensors& g, Needs needs) {
    const Tensor x = saved_x.unpack(), weight = saved_weight.unpack();
    Op op(x.tape(), "convolution_backward", {});
    count_backward(op, x, weight, g[0], needs, flops);
    Tensors out(3);
    const Ref<Storage> weight_copy = turned_weight(weight, channels_last);
    if (needs[0]) {
      const Ref<Storage> grad_copy = turned_gradient(g[0], channels_last);
      out[0] = result(g[0], x.sizes(), channels_last);
      turned_around(x, weight, g[0], channels_last);
    }
    const bool bias_first = x.tape().dialect.rules.conv_bias_gradient_first;
    if (needs[2] && bias_first) out[2] = empty(x.tape(), {channels}, g[0].dtype());
    if (needs[1]) {
      out[1] = result(g[0], weight.sizes(), channels_last);
      turned_around(x, weight, g[0], channels_last);
      const Ref<Storage> grad_copy = turned_gradient(g[0], channels_last);
      columns(x, weight, g[0], strided);
    }
    if (needs[2] && !bias_first) out[2] = empty(x.tape(), {channels}, g[0].dtype());
    return out;
  });
}

}  // namespace

Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias, const Conv2dArgs& args) {
  return convolution<Conv2dArgs>(x, weight, bias, args, output_sizes);
}

Tensor conv_transpose2d(const Tensor& x, const Tensor& weight, const Tensor& bias, const Conv2dArgs& args) {
  return convolution<Conv2dArgs>(x, weight, bias, args, transposed_sizes, true);
}

// _convolution: an image of one row. On a device its input and its gradient are made contiguous for the call.
Tensor conv1d(const Tensor& input, const Tensor& w, const Tensor& b, const Conv1dArgs& args) {
  const Tensor bias = autocast_low(b), weight = autocast_low(w), x = autocast_low(input);
  const auto contiguous_copy = [](const Tensor& t) {
    const bool copies = t.tape().dialect.kernels.scratch && !t.is_contiguous();
    return copies ? t.tape().scratch(checked_mul(t.numel(), size_of(t.dtype()))) : Ref<Storage>();
  };
  const Dims sizes = output_sizes(x, weight, args);
  Op op(x.tape(), "convolution", {&x, &weight, &bias});
  Saved saved_x = op.save(x), saved_weight = op.save(weight);
  const Ref<Storage> copy = contiguous_copy(x);
  const double flops = product_flops(numel(sizes), weight);
  count_forward(x, flops);
  return op.finish(empty(x.tape(), sizes, x.dtype()),
                   [saved_x = std::move(saved_x), saved_weight = std::move(saved_weight), contiguous_copy, flops](Tensors& g, Needs needs) {
                     const Tensor x = saved_x.unpack(), weight = saved_weight.unpack();
                     Op op(x.tape(), "convolution_backward", {});
                     count_backward(op, x, weight, g[0], needs, flops);
                     const Ref<Storage> copies[] = {contiguous_copy(g[0]), contiguous_copy(x)};
                     Tensors out(3);
                     if (needs[0]) out[0] = empty(x.tape(), x.sizes(), g[0].dtype());
                     if (needs[1]) out[1] = empty(x.tape(), weight.sizes(), g[0].dtype());
                     if (needs[2]) out[2] = empty(x.tape(), {weight.size(0)}, g[0].dtype());
                     return out;
                   });
}

Tensor patch_conv3d(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return conv3d(x, weight, bias, {weight.size(2), weight.size(3), weight.size(4)});
}

// The same in three dimensions.
Tensor conv3d(const Tensor& input, const Tensor& w, const Tensor& b, const Dims& stride) {
  const Tensor bias = autocast_low(b), weight = autocast_low(w), x = autocast_low(input);
  Dims sizes{x.size(0), weight.size(0)};
  for (int d = 2; d < x.dim(); ++d) {
    if (x.size(d) < weight.size(d))
      throw Error("[conv3d] input " + to_string(x.sizes()) + " is smaller than a kernel of " + to_string(weight.sizes()),
                  "use more frames or larger images");
    sizes.push_back((x.size(d) - weight.size(d)) / stride[d - 2] + 1);
  }
  Op op(x.tape(), "convolution", {&x, &weight, &bias});
  Saved saved_x = op.save(x), saved_weight = op.save(weight);
  const double flops = product_flops(numel(sizes), weight);
  count_forward(x, flops);
  return op.finish(empty(x.tape(), sizes, x.dtype()),
                   [saved_x = std::move(saved_x), saved_weight = std::move(saved_weight), flops](Tensors& g, Needs needs) {
                     const Tensor x = saved_x.unpack(), weight = saved_weight.unpack();
                     Op op(x.tape(), "convolution_backward", {});
                     count_backward(op, x, weight, g[0], needs, flops);
                     Tensors out(3);
                     if (needs[0]) out[0] = empty(x.tape(), x.sizes(), g[0].dtype());
                     if (needs[1]) out[1] = empty(x.tape(), weight.sizes(), g[0].dtype());
                     if (needs[2]) out[2] = empty(x.tape(), {weight.size(0)}, g[0].dtype());
                     return out;
                   });
}

}  // namespace plimsoll
