// transformers.models.cohere: CohereForCausalLM (Command R). Attention and feed-forward read the same norm and are added together;
// norms and rotary positions are computed in fp32.
#include "model/family.h"
#include "nn/decoder_stack.h"
#include "ops/pointwise.h"
#include "ops/reduce.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

struct CohereConfig : DecoderConfig {
  explicit CohereConfig(const Config& c) {
    vocab_size = 256000;
    hidden_size = 8192;
    intermediate_size = 22528;
    num_hidden_layers = 40;
    num_attention_heads = 64;
    tie_word_embeddings = true;
    read_decoder_config(c, *this);
    reject_captured_outputs(c);
    rope = rope_settings(c, {head_dim, 8192});
    rope.interleaved = true;
    qkv_bias = o_bias = c.flag({"attention_bias"}, false);
    use_qk_norm = c.flag({"use_qk_norm"}, false);
    if (c.is_null("logit_scale"))
      throw Error("[" + c.source() + "] logit_scale null: logits are always scaled", "give logit_scale a number");
  }
  bool use_qk_norm = false;
};

// A layer norm without bias, written out in fp32.
struct CohereLayerNorm : Module {
  CohereLayerNorm(Module& parent, std::string_view name, const Dims& sizes) : Module(parent, name) { weight = parameter("weight", sizes); }
  CohereLayerNorm(Module& parent, std::string_view name, int64_t width) : CohereLayerNorm(parent, name, Dims{width}) {}

  Tensor operator()(const Tensor& x) const {
    Forward here(*this);
    Tensor hidden = to(x, DType::float32);
    const Tensor average = mean(hidden, {-1}, true);
    Tensor square = pow(sub(hidden, average), 2);
    const Tensor variance = mean(square, {-1}, true);
    square.reset();
    {
      const Tensor centred = sub(hidden, average);
      const Tensor scale = rsqrt(add_scalar(variance));
      hidden = mul(centred, scale);
    }
    hidden = mul(to(weight, DType::float32), hidden);
    return to(hidden, x.dtype());
  }

  Tensor weight;
};

struct CohereAttention : Module {
  CohereAttention(Module& parent, std::string_view name, const CohereConfig& c) : Module(parent, name), config(c) {
    if (!c.use_qk_norm) return;
    q_norm = std::make_unique<CohereLayerNorm>(*this, "q_norm", Dims{c.num_attention_heads, c.head_dim});
    k_norm = std::make_unique<CohereLayerNorm>(*this, "k_norm", Dims{c.num_key_value_heads, c.head_dim});
  }

  static Tensor rotate_neighbours(const Tensor& x, const Tensor& cos, const Tensor& sin) {
    const Tensor straight = mul(x, cos);
    const Tensor turned = mul(rotate_every_two(x), sin);
    return add(straight, turned);
  }

  // apply_rotary_pos_emb, in fp32
  static std::pair<Tensor, Tensor> turn(const Tensor& q_in, const Tensor& k_in, const CosSin& tables) {
    const Tensor q = to(q_in, DType::float32), k = to(k_in, DType::float32);
    const Tensor cos = unsqueeze(tables.cos, 1), sin = unsqueeze(tables.sin, 1);
    const Tensor q_embed = rotate_neighbours(q, cos, sin);
    const Tensor k_embed = rotate_neighbours(k, cos, sin);
    Tensor q_cast = to(q_embed, q_in.dtype());
    return {q_cast, to(k_embed, q_in.dtype())};
  }

  Tensor operator()(const Tensor& x, const CosSin& tables, const Tensor& mask, Tensor* weights) const {
    Forward here(*this);
    const Dims heads{x.size(0), x.size(1), -1, config.head_dim};
    Tensor q = view(q_proj(x), heads), k = view(k_proj(x), heads), v = view(v_proj(x), heads);  // (B, T, H or KV, D)
    if (config.use_qk_norm) {
      q = (*q_norm)(q);
      k = (*k_norm)(k);
    }
    q = transpose(q, 1, 2);  // (B, H, T, D)
    k = transpose(k, 1, 2);  // (B, KV, T, D)
    v = transpose(v, 1, 2);  // (B, KV, T, D)
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

  const CohereConfig& config;
  Linear q_proj{*this, "q_proj", config.hidden_size, (config.num_attention_heads * config.head_dim), config.qkv_bias};
  Linear k_proj{*this, "k_proj", config.hidden_size, (config.num_key_value_heads * config.head_dim), config.qkv_bias};
  Linear v_proj{*this, "v_proj", config.hidden_size, (config.num_key_value_heads * config.head_dim), config.qkv_bias};
  Linear o_proj{*this, "o_proj", (config.num_attention_heads * config.head_dim), config.hidden_size, config.o_bias};
  std::unique_ptr<CohereLayerNorm> q_norm, k_norm;
};

struct CohereDecoderLayer : Module {
  CohereDecoderLayer(Module& parent, std::string_view name, const CohereConfig& c) : Module(parent, name), config(c) {}

  Tensor operator()(const Tensor& x, const CosSin& tables, const Tensor& mask) const {
    Forward here(*this);
    Tensor weights;
    const Tensor residual = x;
    Tensor hidden = input_layernorm(x);  // (B, T, C)
    const Tensor hidden_attention = run_attention(self_attn, hidden, &weights, tables, mask);
    const Tensor hidden_mlp = run_part(mlp, hidden);
    hidden = add(add(residual, hidden_attention), hidden_mlp);
    return hidden;
  }

  const CohereConfig& config;
  CohereAttention self_attn{*this, "self_attn", config};
  GatedMLP mlp{*this, "mlp", config.hidden_size, config.intermediate_size, false, config.hidden_act};
  CohereLayerNorm input_layernorm{*this, "input_layernorm", config.hidden_size};
};

using CohereModel = DecoderStack<CohereConfig, CohereDecoderLayer, CohereLayerNorm>;

struct CohereForCausalLM : CausalLM<CohereConfig, CohereModel> {
  using CausalLM::CausalLM;
  Tensor finish_logits(Tensor logits) const override { return mul_scalar(logits); }
};

std::unique_ptr<Model> make_cohere(Build& build, const Config& c) {
  const CohereConfig config(c);
  return std::make_unique<CohereForCausalLM>(build, config, lm_head(config));
}

}  // namespace

const Family& cohere_family() {
  static const Family kFamily{
      .name = "cohere",
      .models = {{"cohere", {"CohereForCausalLM"}, InputKind::lm, 2048, make_cohere}},
      .presets =
          {{"aya-23-8b",
            R"({"hidden_size":4096,"intermediate_size":14336,"num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":8})",
            8192},
           {"command-r", R"({})", 8192},
           {"command-r-plus",
            R"({"hidden_size":12288,"intermediate_size":33792,"num_hidden_layers":64,"num_attention_heads":96,"num_key_value_heads":8,"use_qk_norm":true})",
            8192}},
      .tensor_plan = TensorPlan{},
  };
  return kFamily;
}

}  // namespace plimsoll
