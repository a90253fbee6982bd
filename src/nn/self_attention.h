// Self-attention of four square linear layers, as transformers' models without rotary positions have it. What differs between them: the
// names of the layers, the order they are made in, and how the weights are worked out.
#pragma once

#include "nn/layers.h"
#include "nn/transformer.h"

namespace plimsoll {

struct SelfAttentionSettings {
  int64_t width, heads;
  AttentionCall call = {};       // but for its mask
  bool query_first = false;      // made in the order q, k, v; else k, v, q
  const char* suffix = "_proj";  // "q_proj", ..., "out_proj"
  bool heads_last = false;       // all three are made before any is split into heads
};

struct SelfAttention : Module {
  SelfAttention(Module& parent, std::string_view name, const SelfAttentionSettings& s);
  Tensor operator()(const Tensor& x, const Tensor& mask, Tensor* weights) const;  // (B, T, C)

 private:
  int64_t head_width_;
  bool heads_last_;
  AttentionCall call_;
  Linear first_, second_, third_, out_;
  const Linear &q_, &k_, &v_;
};

}  // namespace plimsoll
