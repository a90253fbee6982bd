#include "nn/vision.h"

#include "nn/blocks.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "nn/lora_conv2d.h"
#include "nn/stochastic_depth.h"
#include "ops/conv.h"
#include "ops/loss.h"
#include "ops/norm.h"
#include "ops/pointwise.h"
#include "ops/pool.h"
#include "util/text.h"

namespace plimsoll {

Conv2d::Conv2d(Module& parent, std::string_view name, int64_t in, int64_t out, const Conv2dOptions& o) : Module(parent, name), options(o) {
  if (in % o.groups != 0 || out % o.groups != 0)
    throw Error(
        "[conv2d] " + std::to_string(o.groups) + " groups do not divide " + std::to_string(in) + " or " + std::to_string(out) + " channels",
        "choose groups that divide the channels");
  const AdapterSettings* adapter = build().tuning.changes_anything() ? build().tuning.adapter_of(path(), false) : nullptr;
  if (adapter) keep_parameters_in("base_layer");
  weight = parameter("weight", {out, in / o.groups, o.kernel.h, o.kernel.w});
  if (o.bias) bias = parameter("bias", {out});
  if (adapter) lora_ = std::make_unique<LoraConv2d>(*this, *adapter);
}

Conv2d::~Conv2d() = default;

Tensor Conv2d::operator()(const Tensor& x) const {
  Forward here(*this);
  return lora_ && build().adapters_active ? (*lora_)(*this, x) : base(x);
}

Tensor Conv2d::base(const Tensor& x) const {
  ScopeGuard here(tape(), parameter_scope());
  return conv2d(
      x, weight, bias,
      {options.stride.h, options.stride.w, options.padding.h, options.padding.w, options.dilation.h, options.dilation.w, options.groups});
}

BatchNorm2d::BatchNorm2d(Module& parent, std::string_view name, int64_t channels) : Module(parent, name) {
  weight = parameter("weight", {channels});
  bias = parameter("bias", {channels});
  running.mean = buffer("running_mean", {channels});
  running.var = buffer("running_var", {channels});
  buffer("num_batches_tracked", {}, DType::int64);
}

Tensor BatchNorm2d::operator()(const Tensor& x) const {
  Forward here(*this);
  return batch_norm(x, weight, bias, running);
}

Tensor Activation::operator()(const Tensor& x) const {
  Forward here(*this);
  switch (kind) {
    case Act::none: return x;
    case Act::relu: return inplace ? relu_(x) : relu(x);
    case Act::relu6: return inplace ? hardtanh_(x) : hardtanh(x);
    case Act::silu: return inplace ? silu_(x) : silu(x);
    case Act::hardswish: return inplace ? hardswish_(x) : hardswish(x);
    case Act::sigmoid: return sigmoid(x);
    case Act::hardsigmoid: return inplace ? hardsigmoid_(x) : hardsigmoid(x);
  }
  return x;
}

namespace {
Pool2dArgs pool_args(const PoolOptions& o) { return {o.kernel, o.kernel, o.stride, o.stride, o.padding, o.padding, o.ceil_mode}; }
}  // namespace

Tensor MaxPool2d::operator()(const Tensor& x) const {
  Forward here(*this);
  return max_pool2d(x, pool_args(options));
}

Tensor AvgPool2d::operator()(const Tensor& x) const {
  Forward here(*this);
  return avg_pool2d(x, pool_args(options));
}

Tensor AdaptiveAvgPool2d::operator()(const Tensor& x) const {
  Forward here(*this);
  return adaptive_avg_pool2d(x, out.h, out.w);
}

Tensor InplaceDropout::operator()(const Tensor& x) const {
  Forward here(*this);
  return dropout_(x, p);
}

Tensor Sequential::operator()(const Tensor& x) const {
  Tensor input = x;
  for (const Step& step : steps_) {
    const bool block = step.module->has_children() && build().block_depth == 0;
    const auto run = [&step](const Tensor& h) {
      BlockDepth inside(step.module->build());
      return step.run(h);
    };
    std::optional<WorkBlock> noted;
    if (block) noted.emplace(tape(), step.module->scope());
    if (checkpoints(*step.module, block))
      input = checkpoint(tape(), checkpoint_style(*step.module), run, input);
    else
      input = step.module->has_children() ? run(input) : step.run(input);
    if (noted) input = noted->returns(std::move(input));
  }
  return input;
}

void add_conv(Sequential& seq, int64_t in, int64_t out, Conv2dOptions options, bool relu) {
  options.bias = false;
  seq.add<Conv2d>(in, out, options);
  seq.add<BatchNorm2d>(out);
  if (relu) seq.add<Activation>(Act::relu, true);
}

Conv2dNormActivation::Conv2dNormActivation(Module& parent, std::string_view name, int64_t in, int64_t out, const ConvNormOptions& o)
    : Sequential(parent, name) {
  add<Conv2d>(in, out,
              Conv2dOptions{.kernel = o.kernel,
                            .stride = o.stride,
                            .padding = (o.kernel - 1) / 2 * o.dilation,
                            .dilation = o.dilation,
                            .groups = o.groups,
                            .bias = false});
  add<BatchNorm2d>(out);
  if (o.act != Act::none) add<Activation>(o.act, true);
}

SqueezeExcitation::SqueezeExcitation(Module& parent, std::string_view name, int64_t channels, int64_t squeeze,
                                     const SqueezeExcitationOptions& o)
    : Module(parent, name),
      avgpool(*this, "avgpool", 1),
      fc1(*this, "fc1", channels, squeeze, {}),
      fc2(*this, "fc2", squeeze, channels, {}),
      activation(*this, "activation", o.activation, o.inplace),
      scale_activation(*this, "scale_activation", o.scale_activation, false) {}

Tensor SqueezeExcitation::scale_of(const Tensor& input) const {
  Tensor scale = avgpool(input);  // (N, C, 1, 1)
  scale = fc1(scale);             // (N, squeeze, 1, 1)
  scale = activation(scale);
  scale = fc2(scale);  // (N, C, 1, 1)
  return scale_activation(scale);
}

Tensor SqueezeExcitation::operator()(const Tensor& input) const {
  Forward here(*this);
  const Tensor scale = scale_of(input);  // (N, C, 1, 1)
  return mul(scale, input);              // (N, C, H, W)
}

Tensor StochasticDepth::operator()(const Tensor& input) const {
  Forward here(*this);
  return stochastic_depth(input, p);
}

void require_images(const Build& build, const Batch& batch) {
  if (!batch.pixel_values) throw Error("[torchvision] a network for images got no pixels", "set inputs to image");
}

Output ImageClassifier::forward(const Batch& batch) {
  require_images(build(), batch);
  const Tensor logits = (*this)(batch.pixel_values);  // (N, classes)
  return {cross_entropy(logits, batch.labels), {}};
}

int64_t make_divisible(double v, int64_t divisor) {
  if (!(std::abs(v) < 1e15)) throw Error("[torchvision] more than 1e15 channels", "choose a smaller width_mult");
  const int64_t nearest = std::max(divisor, static_cast<int64_t>(v + divisor / 2.0) / divisor * divisor);
  return nearest < 0.9 * v ? nearest + divisor : nearest;
}

double probability(const Config& config, const char* key, double fallback) {
  const double p = config.number({key}, fallback);
  if (!(p >= 0.0 && p <= 1.0))
    throw Error("[" + config.source() + "] " + key + " is " + std::to_string(p) + ", expected a number from 0 to 1",
                std::string("leave ") + key + " out to take its default");
  return p;
}

void require_known_arguments(const Config& config, const char* family, std::initializer_list<const char*> known) {
  std::vector<std::string> names{"num_classes", "weights", "progress", "init_weights", "zero_init_residual"};
  names.insert(names.end(), known.begin(), known.end());
  for (const auto& [key, value] : config.values().items()) {
    if (std::find(names.begin(), names.end(), key) == names.end() && !value.is_null())
      throw Error(std::string("[") + family + "] argument " + key + " is not known", did_you_mean(key, names));
  }
}

}  // namespace plimsoll
