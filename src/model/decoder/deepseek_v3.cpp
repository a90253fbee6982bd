// transformers.models.deepseek_v3: DeepseekV3ForCausalLM and DeepseekV3ForSequenceClassification.
#include "model/family.h"
#include "nn/latent_attention.h"
#include "nn/moe_decoder.h"
#include "ops/index.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

struct DeepseekV3Config : LatentConfig {
  explicit DeepseekV3Config(const Config& c) {
    vocab_size = 129280;
    hidden_size = 7168;
    intermediate_size = 18432;
    moe_intermediate_size = 2048;
    num_hidden_layers = 61;
    num_attention_heads = num_key_value_heads = 128;
    num_experts = 256;
    num_experts_per_tok = 8;
    dense_layers = 3;
    read_latent_config(c, *this);
    read_expert_groups(c, *this);
    norm_topk_prob = c.flag({"norm_topk_prob"}, true);
    rope = rope_settings(c, {qk_rope_head_dim, 4096});
    rope_interleave = c.flag({"rope_interleave"}, true);
  }
  bool rope_interleave = true;
};

struct DeepseekV3Attention : LatentAttention {
  DeepseekV3Attention(Module& parent, std::string_view name, const DeepseekV3Config& c)
      : LatentAttention(parent, name, c), interleaved(c.rope_interleave) {}

  std::pair<Tensor, Tensor> turn(const Tensor& q, const Tensor& k, const CosSin& tables) const override {
    if (!interleaved) return apply_rotary_pos_emb(q, k, tables);
    const int64_t width = q.size(-1);
    const Tensor cos = unsqueeze(slice(tables.cos, -1, 0, width / 2), 1), sin = unsqueeze(slice(tables.sin, -1, 0, width / 2), 1);
    const Tensor q1 = slice(q, -1, 0, width, 2), q2 = slice(q, -1, 1, width, 2), k1 = slice(k, -1, 0, width, 2),
                 k2 = slice(k, -1, 1, width, 2);
    Tensor q_embed = rotate_pair(q1, q2, cos, sin);
    return {q_embed, rotate_pair(k1, k2, cos, sin)};
  }
  bool interleaved;  // neighbours are turned
};

struct DeepseekV3TopkRouter : Module {
  DeepseekV3TopkRouter(Module& parent, std::string_view name, const DeepseekV3Config& c) : Module(parent, name) {
    weight = parameter("weight", {c.num_experts, c.hidden_size});
    e_score_correction_bias = buffer("e_score_correction_bias", {c.num_experts});
  }
  Tensor operator()(const Tensor& x) const {
    Forward here(*this);
    const Tensor wide = to(view(x, {-1, x.size(-1)}), DType::float32), wide_weight = to(weight, DType::float32);
    return linear(wide, wide_weight);  // (N, E)
  }
  Tensor weight, e_score_correction_bias;
};

struct DeepseekV3MoE : UnaryModule {
  DeepseekV3MoE(Module& parent, std::string_view name, const DeepseekV3Config& c) : UnaryModule(parent, name), config(c) {}

  // Scores with a correction choose the experts, scores without it weigh them.
  TopK route_tokens_to_experts(const Tensor& router_logits) const {
    const Tensor scores = sigmoid(router_logits);                         // (N, E)
    const Tensor for_choice = add(scores, gate.e_score_correction_bias);  // (N, E)
    Tensor group_scores;                                                  // (N, groups)
    {
      const Tensor best = topk(view(for_choice, {-1, config.n_group, config.num_experts / config.n_group}), 2).values;
      group_scores = sum(best, {-1}, false);
    }
    const BestGroups groups(group_scores, config);
    const Tensor scores_for_choice = masked_fill(for_choice, groups.outside());
    const Tensor indices = topk(scores_for_choice, config.num_experts_per_tok).indices;  // (N, K)
    Tensor weights = gather(scores, 1, indices), denominator;
    if (config.norm_topk_prob) {
      denominator = add_scalar(sum(weights, {-1}, true));
      weights = div_(weights, denominator);
    }
    weights = mul_scalar(weights);
    return {weights, indices};
  }

  Tensor operator()(const Tensor& x) const override {
    Forward here(*this);
    const Tensor router_logits = gate(x);
    const TopK top = route_tokens_to_experts(router_logits);
    Tensor hidden = view(x, {-1, x.size(-1)});  // (N, C)
    hidden = view(experts(hidden, top.indices, top.values), x.sizes());
    hidden = add(hidden, shared_experts(x));
    return hidden;
  }

  const DeepseekV3Config& config;
  Experts experts{*this, "experts", config};
  DeepseekV3TopkRouter gate{*this, "gate", config};
  GatedMLP shared_experts{*this, "shared_experts", config.hidden_size, (config.moe_intermediate_size * config.shared_experts),
                          false, config.hidden_act};
};

using DeepseekV3Model = DecoderStack<DeepseekV3Config, MoeDecoderLayer<DeepseekV3Config, DeepseekV3MoE, DeepseekV3Attention>>;

std::unique_ptr<Model> make_deepseek_v3(Build& build, const Config& c) {
  const DeepseekV3Config settings(c);
  return std::make_unique<CausalLM<DeepseekV3Config, DeepseekV3Model>>(build, settings, lm_head(settings));
}

std::unique_ptr<Model> make_deepseek_v3_classifier(Build& build, const Config& c) {
  return make_moe_classifier<DeepseekV3Config, DeepseekV3Model>(build, c, DeepseekV3Config(c));
}

}  // namespace

const Family& deepseek_v3_family() {
  static const Family kFamily{
      .name = "deepseek_v3",
      .models = {{"deepseek_v3", {"DeepseekV3ForCausalLM"}, InputKind::lm, 2048, make_deepseek_v3},
                 {"deepseek_v3-classifier", {"DeepseekV3ForSequenceClassification"}, InputKind::cls, 2048, make_deepseek_v3_classifier}},
      .presets = {{"deepseek-v3", R"({"rope_parameters":{"rope_type":"yarn","factor":40}})", 4096}},
      .programs = {.megatron = MegatronDefaults{.gated = true,
                                                .rope = true,
                                                .rms = true,
                                                .layers = 61,
                                                .hidden = 7168,
                                                .heads = 128,
                                                .groups = 128,
                                                .ffn = 18432,
                                                .vocab = 129280,
                                                .experts = 256,
                                                .top_k = 8,
                                                .expert_ffn = 2048,
                                                .shared_experts = 1,
                                                .dense_layers = 3,
                                                .kv_rank = 512,
                                                .q_rank = 1536}},
  };
  return kFamily;
}

}  // namespace plimsoll
