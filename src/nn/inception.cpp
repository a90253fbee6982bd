#include "nn/inception.h"

#include "ops/loss.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {
Conv2dOptions without_bias(Conv2dOptions o) {
  o.bias = false;
  return o;
}
}  // namespace

BasicConv2d::BasicConv2d(Module& parent, std::string_view name, int64_t in, int64_t out, Conv2dOptions options)
    : Module(parent, name), conv(*this, "conv", in, out, without_bias(options)), bn(*this, "bn", out) {}

Tensor BasicConv2d::operator()(const Tensor& input) const {
  Forward here(*this);
  Tensor x = conv(input);  // (N, out, H / stride, W / stride)
  x = bn(x);
  return relu_(x);
}

Tensor transform_input(const Tensor& x) {
  Tensors channels;
  for (int i = 0; i < 3; ++i) {
    const Tensor scaled = mul_scalar(unsqueeze(select(x, 1, i), 1));
    channels.push_back(add_scalar(scaled));  // (N, 1, H, W)
  }
  return cat(channels, 1);  // (N, 3, H, W)
}

InceptionArguments::InceptionArguments(const Config& c, bool aux_logits_with_weights)
    : num_classes(c.size({"num_classes"}, 1000)),
      aux_logits(c.flag({"aux_logits"}, c.find({"weights"}) ? aux_logits_with_weights : true)),
      transform_input(c.flag({"transform_input"}, c.find({"weights"}) != nullptr)) {}

Output AuxiliaryClassifier::forward(const Batch& batch) {
  require_images(build(), batch);
  const Tensors logits = (*this)(batch.pixel_values);  // 1 to 3 x (N, classes)
  Tensor loss = cross_entropy(logits[0], batch.labels);
  for (size_t i = 1; i < logits.size(); ++i) {
    const Tensor auxiliary = cross_entropy(logits[i], batch.labels);
    loss = add(loss, mul_scalar(auxiliary));
  }
  return {loss, {}};
}

}  // namespace plimsoll
