// transformers.models.stablelm: StableLmForCausalLM and StableLmForSequenceClassification.
#include "model/family.h"
#include "nn/decoder_stack.h"
#include "nn/last_token_classifier.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

struct StableLmConfig : DecoderConfig {
  explicit StableLmConfig(const Config& c) {
    vocab_size = 50304;
    hidden_size = 2560;
    intermediate_size = 6912;
    num_key_value_heads = 32;
    read_decoder_config(c, *this);
    reject_captured_outputs(c);
    c.require_divides("num_attention_heads", num_attention_heads, "hidden_size", hidden_size);
    if (head_dim * num_attention_heads != hidden_size)
      throw Error("[" + c.source() + "] head_dim " + std::to_string(head_dim) + " is not hidden_size / num_attention_heads",
                  "remove head_dim: stablelm does not read it");
    rope = rope_settings(c, {head_dim, 4096, 0.25});
    qkv_bias = c.flag({"use_qkv_bias"}, false);
    qk_layernorm = c.flag({"qk_layernorm"}, false);
    use_parallel_residual = c.flag({"use_parallel_residual"}, false);
    hidden_dropout = c.number({"hidden_dropout"}, 0.0);
  }
  bool qk_layernorm = false, use_parallel_residual = false;
  double hidden_dropout = 0.0;
};

// A norm of its own for every head.
struct StableLmLayerNormPerHead : Module {
  StableLmLayerNormPerHead(Module& parent, std::string_view name, int64_t width, int64_t heads) : Module(parent, name) {
    for (int64_t i = 0; i < heads; ++i) norms.add(width, true, false);
  }

  Tensor operator()(const Tensor& x) {
    Forward here(*this);
    const Tensors states_per_head = split(x, 1, 1);  // H x (B, 1, T, D)
    Tensors normed;
    for (size_t i = 0; i < norms.size(); ++i) normed.push_back(norms[i](states_per_head[i]));
    return cat(normed, 1);  // (B, H, T, D)
  }

  ModuleList<LayerNorm> norms{*this, "norms"};
};

struct StableLmAttention : Module {
  StableLmAttention(Module& parent, std::string_view name, const StableLmConfig& c) : Module(parent, name), config(c) {
    if (!c.qk_layernorm) return;
    q_layernorm = std::make_unique<StableLmLayerNormPerHead>(*this, "q_layernorm", c.head_dim, c.num_attention_heads);
    k_layernorm = std::make_unique<StableLmLayerNormPerHead>(*this, "k_layernorm", c.head_dim, c.num_key_value_heads);
  }

  Tensor operator()(const Tensor& x, const CosSin& tables, const Tensor& mask, Tensor* weights) const {
    Forward here(*this);
    const Dims heads{x.size(0), x.size(1), -1, config.head_dim};
    Tensor q = q_proj(x), k = k_proj(x), v = v_proj(x);
    q = transpose(view(q, heads), 1, 2);  // (B, H, T, D)
    k = transpose(view(k, heads), 1, 2);  // (B, KV, T, D)
    v = transpose(view(v, heads), 1, 2);  // (B, KV, T, D)
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
    Tensor out = attention(build(), q, k, v, call, weights);  // (B, T, H, D)
    out = reshape(out, {x.size(0), x.size(1), -1});           // (B, T, C)
    out = o_proj(out);
    return out;
  }

  const StableLmConfig& config;
  Linear q_proj{*this, "q_proj", config.hidden_size, (config.num_attention_heads * config.head_dim), config.qkv_bias};
  Linear k_proj{*this, "k_proj", config.hidden_size, (config.num_key_value_heads * config.head_dim), config.qkv_bias};
  Linear v_proj{*this, "v_proj", config.hidden_size, (config.num_key_value_heads * config.head_dim), config.qkv_bias};
  Linear o_proj{*this, "o_proj", config.hidden_size, config.hidden_size, false};
  std::unique_ptr<StableLmLayerNormPerHead> q_layernorm, k_layernorm;
};

struct StableLmDecoderLayer : Module {
  StableLmDecoderLayer(Module& parent, std::string_view name, const StableLmConfig& c)
      : Module(parent, name),
        config(c),
        post_attention_layernorm(c.use_parallel_residual ? nullptr
                                                         : std::make_unique<LayerNorm>(*this, "post_attention_layernorm", c.hidden_size)) {}

  Tensor operator()(const Tensor& x, const CosSin& tables, const Tensor& mask) const {
    Forward here(*this);
    Tensor weights, residual = x;
    Tensor hidden = input_layernorm(x);  // (B, T, C)
    const Tensor self_attn_output = run_attention(self_attn, hidden, &weights, tables, mask);
    if (!post_attention_layernorm) {
      Tensor mlp_output = run_part(mlp, hidden);
      mlp_output = dropout(mlp_output);
      hidden = add(add(residual, self_attn_output), mlp_output);
      return hidden;
    }
    residual = add(residual, self_attn_output);
    Tensor mlp_output = mlp((*post_attention_layernorm)(residual));
    mlp_output = dropout(mlp_output);
    hidden = add(residual, mlp_output);
    return hidden;
  }

  const StableLmConfig& config;
  StableLmAttention self_attn{*this, "self_attn", config};
  GatedMLP mlp{*this, "mlp", config.hidden_size, config.intermediate_size, false, config.hidden_act};
  LayerNorm input_layernorm{*this, "input_layernorm", config.hidden_size};
  std::unique_ptr<LayerNorm> post_attention_layernorm;  // none when attention and feed-forward are added together
  Dropout dropout{*this, "dropout", config.hidden_dropout};
};

using StableLmModel = DecoderStack<StableLmConfig, StableLmDecoderLayer, LayerNorm>;

std::unique_ptr<Model> make_stablelm(Build& build, const Config& c) {
  const StableLmConfig config(c);
  return std::make_unique<CausalLM<StableLmConfig, StableLmModel>>(build, config, lm_head(config));
}

std::unique_ptr<Model> make_stablelm_classifier(Build& build, const Config& c) {
  const StableLmConfig config(c);
  return std::make_unique<LastTokenClassifier<StableLmConfig, StableLmModel>>(build, c, config, "model", config.hidden_size, std::nullopt);
}

}  // namespace

const Family& stablelm_family() {
  static const Family kFamily{
      .name = "stablelm",
      .models = {{"stablelm", {"StableLmForCausalLM"}, InputKind::lm, 2048, make_stablelm},
                 {"stablelm-classifier", {"StableLmForSequenceClassification"}, InputKind::cls, 2048, make_stablelm_classifier}},
      .presets =
          {{"stablelm-2-1.6b",
            R"({"hidden_size":2048,"intermediate_size":5632,"num_hidden_layers":24,"num_attention_heads":32,"num_key_value_heads":32,"vocab_size":100352,"use_qkv_bias":true})",
            4096},
           {"stablelm-3b-4e1t", R"({})", 4096},
           {"stablelm-2-12b",
            R"({"hidden_size":5120,"intermediate_size":13824,"num_hidden_layers":40,"num_attention_heads":32,"num_key_value_heads":8,"vocab_size":100352,"qk_layernorm":true,"use_parallel_residual":true})",
            4096}},
  };
  return kFamily;
}

}  // namespace plimsoll
