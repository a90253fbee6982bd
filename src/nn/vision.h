// Layers of torch.nn on images, (N, C, H, W), and what torchvision's classifiers share.
#pragma once

#include <functional>

#include "job/config.h"
#include "nn/layers.h"
#include "nn/model.h"

namespace plimsoll {

// A number for both sides, or {height, width}.
struct Pair {
  Pair(int64_t both) : h(both), w(both) {}
  Pair(int64_t height, int64_t width) : h(height), w(width) {}
  int64_t h, w;
};

struct Conv2dOptions {
  Pair kernel = 1, stride = 1, padding = 0, dilation = 1;
  int64_t groups = 1;
  bool bias = true;
};

struct Conv2d : Module {
  Conv2d(Module& parent, std::string_view name, int64_t in, int64_t out, const Conv2dOptions& options);
  Tensor operator()(const Tensor& x) const;
  Conv2dOptions options;
  Tensor weight, bias;
};

struct AdaptiveAvgPool2d : Module {
  AdaptiveAvgPool2d(Module& parent, std::string_view name, Pair out) : Module(parent, name), out(out) {}
  Tensor operator()(const Tensor& x) const;
  Pair out;
};

// nn.Sequential: children of any types that map a tensor to a tensor, named "0", "1", ...
class Sequential : public Module {
 public:
  Sequential(Module& parent, std::string_view name) : Module(parent, name) {}
  template <class T, class... Args>
  T& add(Args&&... args) {
    auto owned = std::make_unique<T>(*this, std::to_string(steps_.size()), std::forward<Args>(args)...);
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

// A network from pixels to logits, trained with cross-entropy.
class ImageClassifier : public Model {
 public:
  using Model::Model;
  virtual Tensor operator()(const Tensor& pixels) = 0;
  Output forward(const Batch& batch) override;
};

// Keyword arguments of a torchvision constructor: throws for one that is not in `known` (progress, weights and the
// initialisation of weights cost no memory and are always known).
void require_known_arguments(const Config& config, const char* family, std::initializer_list<const char*> known);

}  // namespace plimsoll
