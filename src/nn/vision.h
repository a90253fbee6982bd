// The blocks that torchvision's convolutional classifiers share: torch.nn's layers on (N, C, H, W), nn.Sequential, and
// torchvision.ops.misc. Names and child names are those of the Python modules.
#pragma once

#include <functional>

#include "job/config.h"
#include "nn/layers.h"
#include "nn/model.h"
#include "ops/norm.h"

namespace plimsoll {

// A number for both sides, or {height, width}.
struct Pair {
  constexpr Pair(int64_t both) : h(both), w(both) {}
  constexpr Pair(int64_t height, int64_t width) : h(height), w(width) {}
  int64_t h, w;
};

struct Conv2dOptions {
  Pair kernel = 1, stride = 1, padding = 0, dilation = 1;
  int64_t groups = 1;
  bool bias = true;
};

class LoraConv2d;

struct Conv2d : Module {
  Conv2d(Module& parent, std::string_view name, int64_t in, int64_t out, const Conv2dOptions& options);
  ~Conv2d() override;
  Tensor operator()(const Tensor& x) const;
  Tensor base(const Tensor& x) const;  // without the adapter
  Conv2dOptions options;
  Tensor weight, bias;

 private:
  std::unique_ptr<LoraConv2d> lora_;
};

struct BatchNorm2d : Module {
  BatchNorm2d(Module& parent, std::string_view name, int64_t channels);
  Tensor operator()(const Tensor& x) const;
  Tensor weight, bias;
  RunningStatistics running;
};

enum class Act : uint8_t { none, relu, relu6, silu, hardswish, sigmoid, hardsigmoid };

struct Activation : Module {
  Activation(Module& parent, std::string_view name, Act kind, bool inplace) : Module(parent, name), kind(kind), inplace(inplace) {}
  Tensor operator()(const Tensor& x) const;
  Act kind;
  bool inplace;
};

struct PoolOptions {
  int64_t kernel, stride, padding = 0;
  bool ceil_mode = false;
};

struct MaxPool2d : Module {
  MaxPool2d(Module& parent, std::string_view name, const PoolOptions& options) : Module(parent, name), options(options) {}
  Tensor operator()(const Tensor& x) const;
  PoolOptions options;
};

struct AvgPool2d : Module {
  AvgPool2d(Module& parent, std::string_view name, const PoolOptions& options) : Module(parent, name), options(options) {}
  Tensor operator()(const Tensor& x) const;
  PoolOptions options;
};

struct AdaptiveAvgPool2d : Module {
  AdaptiveAvgPool2d(Module& parent, std::string_view name, Pair out) : Module(parent, name), out(out) {}
  Tensor operator()(const Tensor& x) const;
  Pair out;
};

struct InplaceDropout : Module {
  InplaceDropout(Module& parent, std::string_view name, double p) : Module(parent, name), p(p) {}
  Tensor operator()(const Tensor& x) const;
  double p;
};

// nn.Sequential: children of any types that map a tensor to a tensor, named "0", "1", ... or as told.
class Sequential : public Module {
 public:
  Sequential(Module& parent, std::string_view name) : Module(parent, name) {}
  template <class T, class... Args>
  T& add(Args&&... args) {
    return add_named<T>(std::to_string(steps_.size()), std::forward<Args>(args)...);
  }
  template <class T, class... Args>
  T& add_named(std::string_view name, Args&&... args) {
    auto owned = std::make_unique<T>(*this, name, std::forward<Args>(args)...);
    T& module = *owned;
    steps_.push_back({std::move(owned), [&module](const Tensor& x) { return module(x); }});
    return module;
  }
  Tensor operator()(const Tensor& x) const;

 private:
  struct Step {
    std::unique_ptr<Module> module;
    std::function<Tensor(const Tensor&)> run;
  };
  std::vector<Step> steps_;
};

// A convolution without bias, batch norm and perhaps ReLU in place, as children of `seq` itself.
void add_conv(Sequential& seq, int64_t in, int64_t out, Conv2dOptions options, bool relu);

struct ConvNormOptions {
  int64_t kernel = 3, stride = 1, groups = 1, dilation = 1;
  Act act = Act::relu;
};

// torchvision.ops.Conv2dNormActivation: convolution without bias, batch norm, activation in place; "same" padding.
struct Conv2dNormActivation : Sequential {
  Conv2dNormActivation(Module& parent, std::string_view name, int64_t in, int64_t out, const ConvNormOptions& options);
};

struct SqueezeExcitationOptions {
  Act activation = Act::relu;
  bool inplace = false;
  Act scale_activation = Act::sigmoid;
};

struct SqueezeExcitation : Module {
  SqueezeExcitation(Module& parent, std::string_view name, int64_t channels, int64_t squeeze, const SqueezeExcitationOptions& options);
  Tensor operator()(const Tensor& input) const;
  AdaptiveAvgPool2d avgpool;
  Conv2d fc1, fc2;
  Activation activation, scale_activation;

 private:
  Tensor scale_of(const Tensor& input) const;
};

// Drops whole rows of the batch: one random number a sample.
struct StochasticDepth : Module {
  StochasticDepth(Module& parent, std::string_view name, double p) : Module(parent, name), p(p) {}
  Tensor operator()(const Tensor& input) const;
  double p;
};

// A network from pixels to logits, trained with cross-entropy.
class ImageClassifier : public Model {
 public:
  using Model::Model;
  virtual Tensor operator()(const Tensor& pixels) = 0;
  Output forward(const Batch& batch) override;
};
// Throws for what no torchvision network can do: a batch without pixels, transformers' checkpointing.
void require_images(const Build& build, const Batch& batch);

// torchvision's _make_divisible: the nearest multiple, never more than a tenth below v.
int64_t make_divisible(double v, int64_t divisor);
// A dropout rate or the like: throws unless it is between 0 and 1.
double probability(const Config& config, const char* key, double fallback);
// Keyword arguments of a torchvision constructor: throws for one that is not in `known` (progress, weights and the
// initialisation of weights cost no memory and are always known).
void require_known_arguments(const Config& config, const char* family, std::initializer_list<const char*> known);

}  // namespace plimsoll
