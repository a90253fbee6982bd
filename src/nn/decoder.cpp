#include "nn/decoder.h"

#include "nn/decoder_stack.h"
#include "nn/last_token_classifier.h"
#include "nn/liger.h"
#include "nn/lm_text_encoder.h"
#include "nn/tensor_parallel.h"
#include "nn/transformer.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll {

GatedMLP::GatedMLP(Module& parent, std::string_view name, int64_t width, int64_t inner, bool bias, std::string act_name)
    : UnaryModule(parent, name),
      gate_proj(*this, "gate_proj", width, inner, bias),
      up_proj(*this, "up_proj", width, inner, bias),
      down_proj(*this, "down_proj", inner, width, bias),
      act(std::move(act_name)) {}

Tensor GatedMLP::operator()(const Tensor& input) const {
  Forward here(*this);
  const Tensor x = enter_parallel(build(), input);
  Tensor inner;  // (B, T, F)
  if (build().loss.liger.swiglu) {
    inner = liger_gated_product(gate_proj(x), up_proj(x));
  } else {
    const Tensor gate = activation(*this, act, gate_proj(x));
    const Tensor up = up_proj(x);
    inner = mul(gate, up);
  }
  return down_proj(inner);  // (B, T, C)
}

namespace {

// Gate and up in one layer.
struct FusedGatedMLP : UnaryModule {
  FusedGatedMLP(Module& parent, std::string_view name, const DecoderConfig& c) : UnaryModule(parent, name), config(c) {}

  Tensor operator()(const Tensor& x) const override {
    Forward here(*this);
    const Tensors parts = chunk(gate_up_proj(x), 2, -1);  // 2 x (B, T, F)
    if (build().loss.liger.swiglu) return down_proj(liger_gated_product(parts[0], parts[1]));
    const Tensor up_states = mul(parts[1], activation(config.hidden_act, parts[0]));
    return down_proj(up_states);  // (B, T, C)
  }

  const DecoderConfig& config;
  Linear gate_up_proj{*this, "gate_up_proj", config.hidden_size, 2 * config.intermediate_size, config.mlp_bias};
  Linear down_proj{*this, "down_proj", config.intermediate_size, config.hidden_size, config.mlp_bias};
};

// The head as the configuration's fields say.
struct DecoderLM : CausalLM<DecoderConfig, Decoder> {
  using CausalLM::CausalLM;
  Tensor finish_logits(Tensor logits) const override {
    if (settings.caps_logits) return soft_cap(std::move(logits));
    return settings.finish_logits ? settings.finish_logits(build(), std::move(logits)) : logits;
  }
  bool caps_logits() const override { return settings.caps_logits; }
};

}  // namespace

std::unique_ptr<UnaryModule> gated_mlp(Module& parent, std::string_view name, const DecoderConfig& c, size_t) {
  return std::make_unique<GatedMLP>(parent, name, c.hidden_size, c.intermediate_size, c.mlp_bias, c.hidden_act);
}

std::unique_ptr<UnaryModule> fused_gated_mlp(Module& parent, std::string_view name, const DecoderConfig& c, size_t) {
  return std::make_unique<FusedGatedMLP>(parent, name, c);
}

DecoderBlock::DecoderBlock(Module& parent, std::string_view name, const DecoderConfig& c, size_t layer)
    : DecoderBlock(
          parent, name, c, [&](Module& self) { return std::make_unique<DecoderAttention>(self, "self_attn", c, layer); },
          [&](Module& self) { return c.feed_forward(self, "mlp", c, layer); }) {}

DecoderBlock::DecoderBlock(Module& parent, std::string_view name, const DecoderConfig& c, const MakeAttention& attention,
                           const MakeMlp& mlp)
    : Module(parent, name),
      config_(c),
      self_attn_(attention(*this)),
      mlp_(mlp(*this)),
      before_attention_(make_norm(c.norm_names.before_attention)),
      after_attention_(make_norm(c.norm_names.after_attention)),
      before_mlp_(make_norm(c.norm_names.before_mlp)),
      after_mlp_(make_norm(c.norm_names.after_mlp)),
      attention_dropout_(make_dropout(c.branch_dropouts.attention)),
      mlp_dropout_(make_dropout(c.branch_dropouts.mlp)) {}

std::unique_ptr<UnaryModule> DecoderBlock::make_norm(const char* name) {
  return name ? config_.norm(*this, name, config_.hidden_size) : nullptr;
}

std::unique_ptr<Dropout> DecoderBlock::make_dropout(const char* name) {
  return name ? std::make_unique<Dropout>(*this, name, config_.branch_dropouts.p) : nullptr;
}

Tensor DecoderBlock::operator()(const Tensor& x, const CosSin& tables, const Tensor& mask) const {
  Forward here(*this);
  Tensor weights, residual = x;
  Tensor hidden = normed(before_attention_, x);  // (B, T, C)
  if (config_.parallel) {
    const Tensor attended = run_attention(*self_attn_, hidden, &weights, tables, mask);
    const Tensor fed = run_part(*mlp_, hidden);
    hidden = add(add(residual, attended), fed);
    return hidden;
  }
  hidden = run_attention(*self_attn_, hidden, &weights, tables, mask);
  hidden = normed(after_attention_, hidden);
  hidden = add_branch(residual, hidden, attention_dropout_.get());
  residual = hidden;
  hidden = normed(before_mlp_, hidden);
  hidden = run_part(*mlp_, hidden);
  hidden = normed(after_mlp_, hidden);
  hidden = add_branch(residual, hidden, mlp_dropout_.get());
  return hidden;
}

Tensor DecoderBlock::add_branch(const Tensor& residual, const Tensor& branch, const Dropout* dropout) const {
  if (config_.scales_branches) return add(residual, mul_scalar(branch));
  return add(residual, dropout ? (*dropout)(branch) : branch);
}

std::unique_ptr<Model> make_decoder(Build& build, const DecoderConfig& d) { return std::make_unique<DecoderLM>(build, d, lm_head(d)); }

std::unique_ptr<Model> make_decoder_classifier(Build& build, const Config& config, const DecoderConfig& d, std::optional<int64_t> padding) {
  return std::make_unique<LastTokenClassifier<DecoderConfig, Decoder>>(build, config, d, "model", d.hidden_size, padding);
}

std::unique_ptr<TextEncoder> make_decoder_text_encoder(Module& parent, std::string_view name, const DecoderConfig& d, bool with_head) {
  return std::make_unique<LmTextEncoder<DecoderConfig, Decoder>>(parent, name, d, with_head);
}

}  // namespace plimsoll
