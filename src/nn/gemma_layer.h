// The decoder layer of Gemma 2 and 3: attention and a gated feed-forward, each between two norms and beside a residual.
#pragma once

#include "nn/decoder.h"
#include "nn/gemma.h"
#include "ops/pointwise.h"

namespace plimsoll {

// Attention is made of (parent, name, config).
template <class Config, class Attention>
struct FourNormLayer : Module {
  FourNormLayer(Module& parent, std::string_view name, const Config& c)
      : Module(parent, name),
        self_attn(*this, "self_attn", c),
        mlp(*this, "mlp", c.hidden_size, c.intermediate_size, false, c.hidden_act),
        input_layernorm(*this, "input_layernorm", c.hidden_size),
        post_attention_layernorm(*this, "post_attention_layernorm", c.hidden_size),
        pre_feedforward_layernorm(*this, "pre_feedforward_layernorm", c.hidden_size),
        post_feedforward_layernorm(*this, "post_feedforward_layernorm", c.hidden_size) {}

  Tensor operator()(const Tensor& x, const CosSin& tables, const Tensor& mask) const {
    Forward here(*this);
    Tensor weights, residual = x;
    Tensor hidden = input_layernorm(x);  // (B, T, C)
    hidden = run_attention(self_attn, hidden, &weights, tables, mask);
    hidden = post_attention_layernorm(hidden);
    hidden = add(residual, hidden);
    residual = hidden;
    hidden = pre_feedforward_layernorm(hidden);
    hidden = run_part(mlp, hidden);
    hidden = post_feedforward_layernorm(hidden);
    hidden = add(residual, hidden);
    return hidden;
  }

  Attention self_attn;
  GatedMLP mlp;
  GemmaRMSNorm input_layernorm, post_attention_layernorm, pre_feedforward_layernorm, post_feedforward_layernorm;
};

}  // namespace plimsoll
