// transformers.models.olmo2: Olmo2ForCausalLM and Olmo2ForSequenceClassification. Norms come after attention and feed-forward, and
// on all heads' queries and keys at once.
#include "model/family.h"
#include "nn/decoder_stack.h"
#include "nn/last_token_classifier.h"
#include "nn/rms_norm_fp32.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

DecoderConfig olmo2_settings(const Config& c) {
  DecoderConfig d;
  d.vocab_size = 50304;
  read_decoder_config(c, d);
  reject_captured_outputs(c);
  d.rope = rope_settings(c, {d.head_dim, 2048});
  d.rope.fp32_tables = true;
  d.qkv_bias = d.o_bias = c.flag({"attention_bias"}, false);
  return d;
}

struct Olmo2Attention : Module {
  Olmo2Attention(Module& parent, std::string_view name, const DecoderConfig& c) : Module(parent, name), config(c) {}

  // Turned in fp32 by the tables, back to the type they came in; the fp32 results stay until both are cast.
  static std::pair<Tensor, Tensor> turn(const Tensor& q, const Tensor& k, const CosSin& tables) {
    const auto [q_embed, k_embed] = apply_rotary_pos_emb(q, k, tables);
    Tensor q_cast = to(q_embed, q.dtype());
    return {q_cast, to(k_embed, k.dtype())};
  }

  Tensor operator()(const Tensor& x, const CosSin& tables, const Tensor& mask, Tensor* weights) const {
    Forward here(*this);
    const Dims heads{x.size(0), x.size(1), -1, config.head_dim};
    Tensor q = q_norm(q_proj(x));         // (B, T, H D)
    Tensor k = k_norm(k_proj(x));         // (B, T, KV D)
    Tensor v = v_proj(x);                 // (B, T, KV D)
    q = transpose(view(q, heads), 1, 2);  // (B, H, T, D)
    k = transpose(view(k, heads), 1, 2);  // (B, KV, T, D)
    v = transpose(view(v, heads), 1, 2);  // (B, KV, T, D)
    std::tie(q, k) = turn(q, k, tables);
    AttentionCall call;
    call.mask = mask;
    call.dropout = config.attention_dropout;
    call.kv_groups = config.num_attention_heads / config.num_key_value_heads;
    Tensor out = attention(build(), q, k, v, call, weights);     // (B, T, H, D)
    out = contiguous(reshape(out, {x.size(0), x.size(1), -1}));  // (B, T, H D)
    out = o_proj(out);                                           // (B, T, C)
    return out;
  }

  const DecoderConfig& config;
  Linear q_proj{*this, "q_proj", config.hidden_size, (config.num_attention_heads * config.head_dim), config.qkv_bias};
  Linear k_proj{*this, "k_proj", config.hidden_size, (config.num_key_value_heads * config.head_dim), config.qkv_bias};
  Linear v_proj{*this, "v_proj", config.hidden_size, (config.num_key_value_heads * config.head_dim), config.qkv_bias};
  Linear o_proj{*this, "o_proj", (config.num_attention_heads * config.head_dim), config.hidden_size, config.o_bias};
  Fp32RMSNorm q_norm{*this, "q_norm", (config.num_attention_heads * config.head_dim)};
  Fp32RMSNorm k_norm{*this, "k_norm", (config.num_key_value_heads * config.head_dim)};
};

struct Olmo2DecoderLayer : Module {
  Olmo2DecoderLayer(Module& parent, std::string_view name, const DecoderConfig& c) : Module(parent, name), config(c) {}

  Tensor operator()(const Tensor& x, const CosSin& tables, const Tensor& mask) const {
    Forward here(*this);
    Tensor weights, residual = x;
    Tensor hidden = run_attention(self_attn, x, &weights, tables, mask);  // (B, T, C)
    hidden = post_attention_layernorm(hidden);
    hidden = add(residual, hidden);
    residual = hidden;
    hidden = run_part(mlp, hidden);
    hidden = post_feedforward_layernorm(hidden);
    hidden = add(residual, hidden);
    return hidden;
  }

  const DecoderConfig& config;
  Olmo2Attention self_attn{*this, "self_attn", config};
  GatedMLP mlp{*this, "mlp", config.hidden_size, config.intermediate_size, false, config.hidden_act};
  Fp32RMSNorm post_attention_layernorm{*this, "post_attention_layernorm", config.hidden_size};
  Fp32RMSNorm post_feedforward_layernorm{*this, "post_feedforward_layernorm", config.hidden_size};
};

using Olmo2Model = DecoderStack<DecoderConfig, Olmo2DecoderLayer, Fp32RMSNorm>;

std::unique_ptr<Model> make_olmo2(Build& build, const Config& c) {
  const DecoderConfig d = olmo2_settings(c);
  return std::make_unique<CausalLM<DecoderConfig, Olmo2Model>>(build, d, lm_head(d));
}

std::unique_ptr<Model> make_olmo2_classifier(Build& build, const Config& c) {
  const DecoderConfig d = olmo2_settings(c);
  return std::make_unique<LastTokenClassifier<DecoderConfig, Olmo2Model>>(build, c, d, "model", d.hidden_size, 1);
}

}  // namespace

const Family& olmo2_family() {
  static const Family kFamily{
      .name = "olmo2",
      .models = {{"olmo2", {"Olmo2ForCausalLM"}, InputKind::lm, 2048, make_olmo2},
                 {"olmo2-classifier", {"Olmo2ForSequenceClassification"}, InputKind::cls, 2048, make_olmo2_classifier}},
      .presets =
          {{"olmo-2-1b",
            R"({"hidden_size":2048,"intermediate_size":8192,"num_hidden_layers":16,"num_attention_heads":16,"vocab_size":100352})", 4096},
           {"olmo-2-7b", R"({"vocab_size":100352})", 4096},
           {"olmo-2-13b",
            R"({"hidden_size":5120,"intermediate_size":13824,"num_hidden_layers":40,"num_attention_heads":40,"vocab_size":100352})", 4096},
           {"olmo-2-32b",
            R"({"hidden_size":5120,"intermediate_size":27648,"num_hidden_layers":64,"num_attention_heads":40,"num_key_value_heads":8,"vocab_size":100352})",
            4096}},
      .kernels = {.liger_loss = true},
  };
  return kFamily;
}

}  // namespace plimsoll
