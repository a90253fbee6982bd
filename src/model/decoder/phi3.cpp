// transformers.models.phi3: Phi3ForCausalLM and Phi3ForSequenceClassification.
#include "model/family.h"
#include "nn/decoder_stack.h"
#include "nn/last_token_classifier.h"
#include "nn/liger.h"
#include "nn/transformer.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

struct Phi3Config : DecoderConfig {
  explicit Phi3Config(const Config& c) {
    vocab_size = 32064;
    hidden_size = 3072;
    intermediate_size = 8192;
    read_decoder_config(c, *this);
    resid_pdrop = c.number({"resid_pdrop"}, 0.0);
    sliding_window = plimsoll::sliding_window(c, std::nullopt);
    full_mask = !sliding_window;  // one mask for all layers
    rope = rope_settings(c, {head_dim, 4096, 1.0, "partial_rotary_factor", {"default", "longrope", "su", "yarn"}});
    if (rope.type != "default") rope.type = "longrope";  // su and yarn are names that older checkpoints use
    rope.original_max_position_embeddings = c.size({"original_max_position_embeddings"}, 4096);
  }
  double resid_pdrop = 0.0;
};

struct Phi3Attention : Module {
  Phi3Attention(Module& parent, std::string_view name, const Phi3Config& c) : Module(parent, name), config(c) {}

  Tensor operator()(const Tensor& x, const CosSin& tables, const Tensor& mask, Tensor* weights) const {
    Forward here(*this);
    const Dims heads{x.size(0), x.size(1), -1, config.head_dim};
    const Tensor qkv = qkv_proj(x);  // (B, T, (H + 2 KV) D)
    const int64_t query_pos = config.num_attention_heads * config.head_dim;
    const int64_t key_pos = query_pos + config.num_key_value_heads * config.head_dim;
    Tensor q = slice(qkv, -1, 0, query_pos), k = slice(qkv, -1, query_pos, key_pos), v = slice(qkv, -1, key_pos, qkv.size(-1));
    q = transpose(view(q, heads), 1, 2);  // (B, H, T, D)
    k = transpose(view(k, heads), 1, 2);  // (B, KV, T, D)
    v = transpose(view(v, heads), 1, 2);  // (B, KV, T, D)
    std::tie(q, k) = build().loss.liger.rope ? liger_rotary_pos_emb(q, k, tables) : apply_rotary(q, k, tables);
    AttentionCall call;
    call.mask = mask;
    call.dropout = config.attention_dropout;
    call.kv_groups = config.num_attention_heads / config.num_key_value_heads;
    Tensor out = attention(build(), q, k, v, call, weights);     // (B, T, H, D)
    out = contiguous(reshape(out, {x.size(0), x.size(1), -1}));  // (B, T, C)
    out = o_proj(out);
    return out;
  }

  static std::pair<Tensor, Tensor> apply_rotary(const Tensor& q, const Tensor& k, const CosSin& tables) {
    const Tensor cos = unsqueeze(tables.cos, 1), sin = unsqueeze(tables.sin, 1);
    const int64_t rotary_dim = cos.size(-1);
    const Tensor q_rot = getitem(q, -1, 0, rotary_dim), q_pass = getitem(q, -1, rotary_dim, q.size(-1));
    const Tensor k_rot = getitem(k, -1, 0, rotary_dim), k_pass = getitem(k, -1, rotary_dim, k.size(-1));
    const Tensor q_embed = cat({rotate(q_rot, cos, sin), q_pass}, -1);
    const Tensor k_embed = cat({rotate(k_rot, cos, sin), k_pass}, -1);
    return {q_embed, k_embed};
  }

  const Phi3Config& config;
  Linear o_proj{*this, "o_proj", (config.num_attention_heads * config.head_dim), config.hidden_size, false};
  Linear qkv_proj{*this, "qkv_proj", config.hidden_size, (config.num_attention_heads + 2 * config.num_key_value_heads) * config.head_dim,
                  false};
};

struct Phi3MLP : Module {
  Phi3MLP(Module& parent, std::string_view name, const Phi3Config& c) : Module(parent, name), config(c) {}

  Tensor operator()(const Tensor& x) const {
    Forward here(*this);
    const Tensors parts = chunk(gate_up_proj(x), 2, -1);  // 2 x (B, T, F)
    if (build().loss.liger.swiglu) return down_proj(liger_gated_product(parts[0], parts[1]));
    const Tensor up_states = mul(parts[1], activation(config.hidden_act, parts[0]));
    return down_proj(up_states);  // (B, T, C)
  }

  const Phi3Config& config;
  Linear gate_up_proj{*this, "gate_up_proj", config.hidden_size, 2 * config.intermediate_size, false};
  Linear down_proj{*this, "down_proj", config.intermediate_size, config.hidden_size, false};
};

struct Phi3DecoderLayer : Module {
  Phi3DecoderLayer(Module& parent, std::string_view name, const Phi3Config& c) : Module(parent, name), config(c) {}

  Tensor operator()(const Tensor& x, const CosSin& tables, const Tensor& mask) const {
    Forward here(*this);
    Tensor weights, residual = x;
    Tensor hidden = input_layernorm(x);  // (B, T, C)
    hidden = run_attention(self_attn, hidden, &weights, tables, mask);
    hidden = add(residual, resid_attn_dropout(hidden));
    residual = hidden;
    hidden = post_attention_layernorm(hidden);
    hidden = run_part(mlp, hidden);
    hidden = add(residual, resid_mlp_dropout(hidden));
    return hidden;
  }

  const Phi3Config& config;
  Phi3Attention self_attn{*this, "self_attn", config};
  Phi3MLP mlp{*this, "mlp", config};
  RMSNorm input_layernorm{*this, "input_layernorm", config.hidden_size};
  RMSNorm post_attention_layernorm{*this, "post_attention_layernorm", config.hidden_size};
  Dropout resid_attn_dropout{*this, "resid_attn_dropout", config.resid_pdrop};
  Dropout resid_mlp_dropout{*this, "resid_mlp_dropout", config.resid_pdrop};
};

using Phi3Model = DecoderStack<Phi3Config, Phi3DecoderLayer, RMSNorm>;

std::unique_ptr<Model> make_phi3(Build& build, const Config& c) {
  const Phi3Config config(c);
  return std::make_unique<CausalLM<Phi3Config, Phi3Model>>(build, config, lm_head(config));
}

std::unique_ptr<Model> make_phi3_classifier(Build& build, const Config& c) {
  const Phi3Config config(c);
  return std::make_unique<LastTokenClassifier<Phi3Config, Phi3Model>>(build, c, config, "model", config.hidden_size, 32000);
}

}  // namespace

const Family& phi3_family() {
  static const Family kFamily{
      .name = "phi3",
      .models = {{"phi3", {"Phi3ForCausalLM"}, InputKind::lm, 2048, make_phi3},
                 {"phi3-classifier", {"Phi3ForSequenceClassification"}, InputKind::cls, 2048, make_phi3_classifier}},
      .presets =
          {{"phi-3-mini",
            R"({"hidden_size":3072,"intermediate_size":8192,"num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":32,"vocab_size":32064,"sliding_window":2047})",
            4096},
           {"phi-3.5-mini",
            R"({"hidden_size":3072,"intermediate_size":8192,"num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":32,"vocab_size":32064,"sliding_window":262144})",
            4096},
           {"phi-3-medium",
            R"({"hidden_size":5120,"intermediate_size":17920,"num_hidden_layers":40,"num_attention_heads":40,"num_key_value_heads":10,"vocab_size":32064,"sliding_window":2047})",
            4096},
           {"phi-4",
            R"({"hidden_size":5120,"intermediate_size":17920,"num_hidden_layers":40,"num_attention_heads":40,"num_key_value_heads":10,"vocab_size":100352})",
            4096}},
      .kernels = {.liger_loss = true, .liger_layers = true, .cut_cross_entropy = true},
  };
  return kFamily;
}

}  // namespace plimsoll
