// The feed-forward that most transformers share under various names: linear, activation, linear, dropout.
#pragma once

#include "nn/layers.h"

namespace plimsoll {

struct FeedForwardSettings {
  const char *first, *second;  // what Python calls the two linear layers
  int64_t width, inner;
  std::string act;  // a name of ACT2FN
  double dropout = 0.0;
  bool bias = true;
};

struct FeedForward : UnaryModule {
  FeedForward(Module& parent, std::string_view name, const FeedForwardSettings& s);
  Tensor operator()(const Tensor& x) const override;  // (..., width)

 private:
  Linear first_, second_;
  std::string act_;
  Dropout dropout_;
};

}  // namespace plimsoll
