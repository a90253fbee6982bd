// transformers.models.phi: PhiForCausalLM and PhiForSequenceClassification (Phi-1, Phi-1.5, Phi-2). Attention and feed-forward
// read the same norm and are added together.
#include "model/family.h"
#include "nn/decoder_stack.h"
#include "nn/feed_forward.h"
#include "nn/last_token_classifier.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

struct PhiConfig : DecoderConfig {
  explicit PhiConfig(const Config& c) {
    names.norm = "final_layernorm";
    vocab_size = 51200;
    hidden_size = 2048;
    intermediate_size = 8192;
    num_hidden_layers = 24;
    hidden_act = "gelu_new";
    read_decoder_config(c, *this);
    reject_captured_outputs(c);
    rope = rope_settings(c, {head_dim, 2048, 0.5});
    resid_pdrop = c.number({"resid_pdrop"}, 0.0);
    embd_pdrop = c.number({"embd_pdrop"}, 0.0);
    qk_layernorm = c.flag({"qk_layernorm"}, false);
  }
  double resid_pdrop = 0.0, embd_pdrop = 0.0;
  bool qk_layernorm = false;
};

struct PhiAttention : Module {
  PhiAttention(Module& parent, std::string_view name, const PhiConfig& c) : Module(parent, name), config(c) {
    if (!c.qk_layernorm) return;
    q_layernorm = std::make_unique<LayerNorm>(*this, "q_layernorm", c.head_dim);
    k_layernorm = std::make_unique<LayerNorm>(*this, "k_layernorm", c.head_dim);
  }

  Tensor operator()(const Tensor& x, const CosSin& tables, const Tensor& mask, Tensor* weights) const {
    Forward here(*this);
    const Dims heads{x.size(0), x.size(1), -1, config.head_dim};
    Tensor q = transpose(view(q_proj(x), heads), 1, 2);        // (B, H, T, D)
    Tensor k = transpose(view(k_proj(x), heads), 1, 2);        // (B, KV, T, D)
    const Tensor v = transpose(view(v_proj(x), heads), 1, 2);  // (B, KV, T, D)
    if (config.qk_layernorm) {
      q = (*q_layernorm)(q);
      k = (*k_layernorm)(k);
    }
    const int64_t rotary_ndims = config.rope.dim;
    Tensor q_rot = getitem(q, -1, 0, rotary_ndims), k_rot = getitem(k, -1, 0, rotary_ndims);
    const Tensor q_pass = getitem(q, -1, rotary_ndims, config.head_dim), k_pass = getitem(k, -1, rotary_ndims, config.head_dim);
    std::tie(q_rot, k_rot) = apply_rotary_pos_emb(q_rot, k_rot, tables);
    q = cat({q_rot, q_pass}, -1);
    k = cat({k_rot, k_pass}, -1);
    AttentionCall call;
    call.mask = mask;
    call.dropout = config.attention_dropout;
    call.kv_groups = config.num_attention_heads / config.num_key_value_heads;
    Tensor out = attention(build(), q, k, v, call, weights);     // (B, T, H, D)
    out = contiguous(reshape(out, {x.size(0), x.size(1), -1}));  // (B, T, H D)
    out = dense(out);                                            // (B, T, C)
    return out;
  }

  const PhiConfig& config;
  Linear q_proj{*this, "q_proj", config.hidden_size, (config.num_attention_heads * config.head_dim)};
  Linear k_proj{*this, "k_proj", config.hidden_size, (config.num_key_value_heads * config.head_dim)};
  Linear v_proj{*this, "v_proj", config.hidden_size, (config.num_key_value_heads * config.head_dim)};
  Linear dense{*this, "dense", (config.num_attention_heads * config.head_dim), config.hidden_size};
  std::unique_ptr<LayerNorm> q_layernorm, k_layernorm;
};

struct PhiDecoderLayer : Module {
  PhiDecoderLayer(Module& parent, std::string_view name, const PhiConfig& c) : Module(parent, name), config(c) {}

  Tensor operator()(const Tensor& x, const CosSin& tables, const Tensor& mask) const {
    Forward here(*this);
    Tensor weights;
    const Tensor residual = x;
    Tensor hidden = input_layernorm(x);  // (B, T, C)
    Tensor attn_outputs = run_attention(self_attn, hidden, &weights, tables, mask);
    attn_outputs = resid_dropout(attn_outputs);
    const Tensor feed_forward = resid_dropout(mlp(hidden));
    hidden = add(add(attn_outputs, feed_forward), residual);
    return hidden;
  }

  const PhiConfig& config;
  PhiAttention self_attn{*this, "self_attn", config};
  FeedForward mlp{*this, "mlp", {"fc1", "fc2", config.hidden_size, config.intermediate_size, config.hidden_act}};
  LayerNorm input_layernorm{*this, "input_layernorm", config.hidden_size};
  Dropout resid_dropout{*this, "resid_dropout", config.resid_pdrop};
};

struct PhiModel : DecoderStack<PhiConfig, PhiDecoderLayer, LayerNorm> {
  PhiModel(Module& parent, std::string_view name, const PhiConfig& c)
      : DecoderStack(parent, name, c), embed_dropout(*this, "embed_dropout", c.embd_pdrop) {}
  Tensor enter(Tensor& embeds) const override {
    embeds = embed_dropout(embeds);
    return embeds;
  }
  Dropout embed_dropout;
};

std::unique_ptr<Model> make_phi(Build& build, const Config& c) {
  const PhiConfig config(c);
  HeadSettings head = lm_head(config);
  head.bias = true;
  return std::make_unique<CausalLM<PhiConfig, PhiModel>>(build, config, head);
}

std::unique_ptr<Model> make_phi_classifier(Build& build, const Config& c) {
  const PhiConfig config(c);
  return std::make_unique<LastTokenClassifier<PhiConfig, PhiModel>>(build, c, config, "model", config.hidden_size, std::nullopt);
}

}  // namespace

const Family& phi_family() {
  static const Family kFamily{
      .name = "phi",
      .models = {{"phi", {"PhiForCausalLM"}, InputKind::lm, 2048, make_phi},
                 {"phi-classifier", {"PhiForSequenceClassification"}, InputKind::cls, 2048, make_phi_classifier}},
      .presets =
          {{"phi-1", R"({})", 2048},
           {"phi-1.5", R"({})", 2048},
           {"phi-2",
            R"({"hidden_size":2560,"intermediate_size":10240,"num_hidden_layers":32,"num_attention_heads":32,"partial_rotary_factor":0.4})",
            2048}},
  };
  return kFamily;
}

}  // namespace plimsoll
