// transformers.models.deepseek_v2: DeepseekV2ForCausalLM and DeepseekV2ForSequenceClassification.
#include "model/family.h"
#include "nn/latent_attention.h"
#include "nn/moe_decoder.h"
#include "ops/complex.h"
#include "ops/index.h"
#include "ops/loss.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

struct DeepseekV2Config : LatentConfig {
  explicit DeepseekV2Config(const Config& c) {
    num_experts = 64;
    num_experts_per_tok = 6;       // the class has no default
    moe_intermediate_size = 1408;  // nor one that the kernel takes: 1407
    shared_experts = 2;
    read_latent_config(c, *this);
    c.require_divides("num_attention_heads", num_attention_heads, "hidden_size", hidden_size);
    mlp_bias = c.flag({"mlp_bias"}, false);
    rope = rope_settings(c, {qk_rope_head_dim, 2048});
    rope.complex = true;
    const std::string method = c.text({"topk_method"}, "greedy");
    if (method != "greedy" && method != "group_limited_greedy")
      throw Error("[" + c.source() + "] topk_method '" + method + "' is not known", "known: greedy, group_limited_greedy");
    by_groups = method == "group_limited_greedy";
    if (by_groups) read_expert_groups(c, *this);
  }
  bool by_groups = false;
};

struct DeepseekV2Attention : LatentAttention {
  using LatentAttention::LatentAttention;

  std::pair<Tensor, Tensor> turn(const Tensor& q, const Tensor& k, const CosSin& tables) const override {
    const Tensor q_pairs = in_complex_pairs(q), k_pairs = in_complex_pairs(k);
    const Tensor freqs_cis = unsqueeze(tables.cos, 1);
    Tensor q_out = turned(q_pairs, freqs_cis, q.dtype());
    return {q_out, turned(k_pairs, freqs_cis, k.dtype())};
  }

  static Tensor turned(const Tensor& pairs, const Tensor& freqs_cis, DType dtype) {
    return to(flatten(view_as_real(complex_mul(pairs, freqs_cis)), 3), dtype);
  }
};

struct DeepseekV2Moe : UnaryModule {
  DeepseekV2Moe(Module& parent, std::string_view name, const DeepseekV2Config& c) : UnaryModule(parent, name), config(c) {}

  TopK route_tokens_to_experts(const Tensor& raw_logits) const {
    const Tensor logits = softmax(view(raw_logits, {-1, config.num_experts}), DType::float32);  // (N, E)
    TopK top;
    std::unique_ptr<BestGroups> groups;
    Tensor group_scores, scores;
    if (config.by_groups) {
      group_scores = max(view(logits, {logits.size(0), config.n_group, -1}), false);  // (N, groups)
      groups = std::make_unique<BestGroups>(group_scores, config);
      scores = masked_fill(logits, groups->outside());
      top = topk(scores, config.num_experts_per_tok);
    } else {
      top = topk(logits, config.num_experts_per_tok);
    }
    top.values = mul_scalar(top.values);
    return top;
  }

  Tensor operator()(const Tensor& x) const override {
    Forward here(*this);
    Tensor router_logits;  // (B, T, E)
    {
      const Tensor wide = to(x, DType::float32), weight = to(gate.weight, DType::float32);
      router_logits = linear(wide, weight);
    }
    const TopK top = route_tokens_to_experts(router_logits);
    Tensor hidden = view(x, {-1, x.size(-1)});  // (N, C)
    hidden = view(experts(hidden, top.indices, top.values), x.sizes());
    hidden = add(hidden, shared_experts(x));
    return hidden;
  }

  const DeepseekV2Config& config;
  Experts experts{*this, "experts", config};
  Linear gate{*this, "gate", config.hidden_size, config.num_experts, false};
  GatedMLP shared_experts{*this,           "shared_experts", config.hidden_size, (config.moe_intermediate_size * config.shared_experts),
                          config.mlp_bias, config.hidden_act};
};

using DeepseekV2Model = DecoderStack<DeepseekV2Config, MoeDecoderLayer<DeepseekV2Config, DeepseekV2Moe, DeepseekV2Attention>>;

std::unique_ptr<Model> make_deepseek_v2(Build& build, const Config& c) {
  const DeepseekV2Config settings(c);
  return std::make_unique<CausalLM<DeepseekV2Config, DeepseekV2Model>>(build, settings, lm_head(settings));
}

std::unique_ptr<Model> make_deepseek_v2_classifier(Build& build, const Config& c) {
  return make_moe_classifier<DeepseekV2Config, DeepseekV2Model>(build, c, DeepseekV2Config(c));
}

}  // namespace

const Family& deepseek_v2_family() {
  static const Family kFamily{
      .name = "deepseek_v2",
      .models = {{"deepseek_v2", {"DeepseekV2ForCausalLM"}, InputKind::lm, 2048, make_deepseek_v2},
                 {"deepseek_v2-classifier", {"DeepseekV2ForSequenceClassification"}, InputKind::cls, 2048, make_deepseek_v2_classifier}},
      .presets =
          {{"deepseek-v2-lite",
            R"({"vocab_size":102400,"hidden_size":2048,"intermediate_size":10944,"moe_intermediate_size":1408,"num_hidden_layers":27,"num_attention_heads":16,"n_routed_experts":64,"num_experts_per_tok":6,"first_k_dense_replace":1,"q_lora_rank":null,"rope_parameters":{"rope_type":"yarn","factor":40}})",
            4096},
           {"deepseek-v2",
            R"({"vocab_size":102400,"hidden_size":5120,"intermediate_size":12288,"moe_intermediate_size":1536,"num_hidden_layers":60,"num_attention_heads":128,"n_routed_experts":160,"num_experts_per_tok":6,"first_k_dense_replace":1,"topk_method":"group_limited_greedy","n_group":8,"topk_group":3,"rope_parameters":{"rope_type":"yarn","factor":40}})",
            4096}},
      .programs = {.megatron = MegatronDefaults{.gated = true,
                                                .rope = true,
                                                .rms = true,
                                                .experts = 64,
                                                .top_k = 6,
                                                .expert_ffn = 1408,
                                                .shared_experts = 2,
                                                .kv_rank = 512,
                                                .q_rank = 1536}},
  };
  return kFamily;
}

}  // namespace plimsoll
