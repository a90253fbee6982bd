// The layers of torch.nn that most models share.
#pragma once

#include "nn/module.h"

namespace plimsoll {

struct Linear : Module {
  Linear(Module& parent, std::string_view name, int64_t in, int64_t out, bool with_bias = true);
  // Shares its weight with another module (tied embeddings).
  Linear(Module& parent, std::string_view name, const Tensor& tied_weight, bool with_bias);
  Tensor operator()(const Tensor& x) const;
  Tensor weight, bias;
};

// transformers' Conv1D: a linear layer whose weight is stored (in, out).
struct Conv1D : Module {
  Conv1D(Module& parent, std::string_view name, int64_t out, int64_t in);
  Tensor operator()(const Tensor& x) const;
  Tensor weight, bias;
};

struct Embedding : Module {
  Embedding(Module& parent, std::string_view name, int64_t rows, int64_t width);
  Embedding(Module& parent, std::string_view name, const Tensor& tied_weight);
  Tensor operator()(const Tensor& ids) const;
  Tensor weight;
};

struct LayerNorm : Module {
  LayerNorm(Module& parent, std::string_view name, int64_t width, bool affine = true, bool with_bias = true);
  Tensor operator()(const Tensor& x) const;
  Tensor weight, bias;
};

// LlamaRMSNorm and its kin, written out in fp32 as transformers does.
struct RMSNorm : Module {
  RMSNorm(Module& parent, std::string_view name, int64_t width);
  Tensor operator()(const Tensor& x) const;
  Tensor weight;
};

struct Dropout : Module {
  Dropout(Module& parent, std::string_view name, double p) : Module(parent, name), p(p) {}
  Tensor operator()(const Tensor& x) const;
  double p;
};

}  // namespace plimsoll
