// transformers.models.gpt_oss: GptOssForCausalLM and GptOssForSequenceClassification. Each head's softmax has one more place, its sink,
// that takes weight and gives nothing; there is no SDPA attention.
#include "model/family.h"
#include "nn/moe_decoder.h"
#include "nn/rms_norm_fp32.h"
#include "ops/index.h"
#include "ops/loss.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

struct GptOssConfig : MoeConfig {
  explicit GptOssConfig(const Config& c) {
    vocab_size = 201088;
    hidden_size = 2880;
    intermediate_size = 2880;
    num_hidden_layers = 36;
    num_attention_heads = 64;
    num_key_value_heads = 8;
    head_dim = 64;
    num_experts = 128;
    num_experts_per_tok = 4;
    read_decoder_config(c, *this);
    read_moe_config(c, "num_local_experts", *this);
    moe_intermediate_size = intermediate_size;
    rope = rope_settings(c, {head_dim, 131072});
    if (head_dim % 2 != 0)
      throw Error("[" + c.source() + "] head_dim " + std::to_string(head_dim) + " is odd", "numbers are turned in pairs");
    rope.halved = true;
    norm = norm_of<Fp32RMSNorm>;
    qkv_bias = o_bias = c.flag({"attention_bias"}, true);
    sliding_layer = sliding_layers(c, all_but_each(2, num_hidden_layers));
    sliding_window = plimsoll::sliding_window(c, 128);
    if (!sliding_window)
      throw Error("[" + c.source() + "] sliding_window null: its mask is always made", "give sliding_window a number of tokens");
  }
};

struct GptOssExperts : Experts {
  GptOssExperts(Module& parent, std::string_view name, const GptOssConfig& c)
      : Experts(parent, name, c, {.transposed = true, .bias = true}) {}

  // gate and up take turns along the width
  Tensor apply_gate(const Tensor& gate_up) const override {
    const int64_t width = gate_up.size(-1);
    Tensor gate = slice(gate_up, -1, 0, width, 2), up = slice(gate_up, -1, 1, width, 2);
    gate = clamp_max(gate);
    up = clamp(up);
    Tensor glu;
    {
      const Tensor open = sigmoid(mul_scalar(gate));
      glu = mul(gate, open);
    }
    return mul(add_scalar(up), glu);
  }
};

struct GptOssTopKRouter : Module {
  GptOssTopKRouter(Module& parent, std::string_view name, const GptOssConfig& c) : Module(parent, name), config(c) {
    weight = parameter("weight", {c.num_experts, c.hidden_size});
    bias = parameter("bias", {c.num_experts});
  }

  Routing operator()(const Tensor& x) const {
    Forward here(*this);
    const Tensor logits = linear(x, weight, bias);              // (N, E)
    const TopK top = topk(logits, config.num_experts_per_tok);  // (N, K)
    config.take(logits);
    return {logits, softmax(top.values, top.values.dtype()), top.indices};
  }

  const GptOssConfig& config;
  Tensor weight, bias;
};

struct GptOssMLP : Module {
  GptOssMLP(Module& parent, std::string_view name, const GptOssConfig& c) : Module(parent, name), config(c) {}

  Tensor operator()(const Tensor& x, Tensor* router_scores) const {
    Forward here(*this);
    Tensor hidden = reshape(x, {-1, x.size(-1)});  // (N, C)
    const auto [logits, scores, indices] = router(hidden);
    hidden = experts(hidden, indices, scores);
    *router_scores = scores;
    return reshape(hidden, x.sizes());
  }

  const GptOssConfig& config;
  GptOssTopKRouter router{*this, "router", config};
  GptOssExperts experts{*this, "experts", config};
};

struct GptOssAttention : Module {
  GptOssAttention(Module& parent, std::string_view name, const GptOssConfig& c)
      : Module(parent, name), config(c), sinks(parameter("sinks", {c.num_attention_heads})) {}

  static Tensor turn(const Tensor& x, const CosSin& tables) {
    const Tensors halves = chunk(x, 2, -1);
    return rotate_pair(halves[0], halves[1], unsqueeze(tables.cos, 1), unsqueeze(tables.sin, 1));
  }

  Tensor operator()(const Tensor& x, const CosSin& tables, const Tensor& mask, Tensor* weights) const {
    Forward here(*this);
    const Dims heads{x.size(0), x.size(1), -1, config.head_dim};
    Tensor q = transpose(view(q_proj(x), heads), 1, 2);  // (B, H, T, D)
    Tensor k = transpose(view(k_proj(x), heads), 1, 2);  // (B, KV, T, D)
    Tensor v = transpose(view(v_proj(x), heads), 1, 2);  // (B, KV, T, D)
    Tensor turned = turn(q, tables);
    k = turn(k, tables);
    q = std::move(turned);
    update_cache(build(), k, v);
    Tensor out = eager_attention(q, k, v, mask, weights);        // (B, T, H, D)
    out = contiguous(reshape(out, {x.size(0), x.size(1), -1}));  // (B, T, H D)
    out = o_proj(out);                                           // (B, T, C)
    return out;
  }

  Tensor eager_attention(const Tensor& q, const Tensor& key, const Tensor& value, const Tensor& mask, Tensor* kept) const {
    const int64_t groups = config.num_attention_heads / config.num_key_value_heads;
    const Tensor k = repeat_kv(key, groups), v = repeat_kv(value, groups);
    Tensor weights = matmul(q, transpose(k, 2, 3));  // (B, H, T, T)
    weights = mul_scalar(weights);
    weights = add(weights, mask);
    const Tensor sink = expand(reshape(sinks, {1, -1, 1, 1}), {q.size(0), -1, q.size(2), -1});  // (B, H, T, 1)
    Tensor logits = cat({weights, sink}, -1);                                                   // (B, H, T, T + 1)
    {
      const Tensor largest = max(logits, true);
      logits = sub(logits, largest);
    }
    const Tensor probs = softmax(logits, logits.dtype());
    const Tensor scores = slice(probs, -1, 0, probs.size(-1) - 1);
    weights = to(dropout(scores, config.attention_dropout), v.dtype());
    Tensor out = matmul(weights, v);  // (B, H, T, D)
    out = contiguous(transpose(out, 1, 2));
    *kept = weights;
    return out;
  }

  const GptOssConfig& config;
  Tensor sinks;
  Linear q_proj{*this, "q_proj", config.hidden_size, (config.num_attention_heads * config.head_dim), config.qkv_bias};
  Linear k_proj{*this, "k_proj", config.hidden_size, (config.num_key_value_heads * config.head_dim), config.qkv_bias};
  Linear v_proj{*this, "v_proj", config.hidden_size, (config.num_key_value_heads * config.head_dim), config.qkv_bias};
  Linear o_proj{*this, "o_proj", (config.num_attention_heads * config.head_dim), config.hidden_size, config.o_bias};
};

struct GptOssDecoderLayer : Module {
  GptOssDecoderLayer(Module& parent, std::string_view name, const GptOssConfig& c) : Module(parent, name), config(c) {}

  Tensor operator()(const Tensor& x, const CosSin& tables, const Tensor& mask) const {
    Forward here(*this);
    Tensor beside, residual = x;         // the attention's weights, then the router's scores
    Tensor hidden = input_layernorm(x);  // (B, T, C)
    hidden = run_attention(self_attn, hidden, &beside, tables, mask);
    hidden = add(residual, hidden);
    residual = hidden;
    hidden = post_attention_layernorm(hidden);
    hidden = run_attention(mlp, hidden, &beside);
    hidden = add(residual, hidden);
    return hidden;
  }

  const GptOssConfig& config;
  GptOssAttention self_attn{*this, "self_attn", config};
  GptOssMLP mlp{*this, "mlp", config};
  Fp32RMSNorm input_layernorm{*this, "input_layernorm", config.hidden_size};
  Fp32RMSNorm post_attention_layernorm{*this, "post_attention_layernorm", config.hidden_size};
};

struct GptOssModel : DecoderStack<GptOssConfig, GptOssDecoderLayer> {
  using DecoderStack::DecoderStack;
  Masks make_masks(MaskArgs args) const override {
    args.only_eager = true;
    args.position_ids.reset();
    return DecoderStack::make_masks(args);
  }
};

std::unique_ptr<Model> make_gpt_oss(Build& build, const Config& c) {
  const GptOssConfig settings(c);
  return std::make_unique<MoeCausalLM<GptOssConfig, GptOssModel>>(build, settings, lm_head(settings));
}

std::unique_ptr<Model> make_gpt_oss_classifier(Build& build, const Config& c) {
  return make_moe_classifier<GptOssConfig, GptOssModel>(build, c, GptOssConfig(c));
}

}  // namespace

const Family& gpt_oss_family() {
  static const Family kFamily{
      .name = "gpt_oss",
      .models = {{"gpt_oss", {"GptOssForCausalLM"}, InputKind::lm, 2048, make_gpt_oss},
                 {"gpt_oss-classifier", {"GptOssForSequenceClassification"}, InputKind::cls, 2048, make_gpt_oss_classifier}},
      .presets = {{"gpt-oss-20b", R"({"num_hidden_layers":24,"num_local_experts":32})", 4096}, {"gpt-oss-120b", R"({})", 4096}},
      .kernels = {.liger_loss = true},
  };
  return kFamily;
}

}  // namespace plimsoll
