// transformers.models.qwen3_moe: Qwen3MoeForCausalLM and Qwen3MoeForSequenceClassification.
#include "model/family.h"
#include "nn/moe_decoder.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

MoeConfig qwen3_moe_settings(const Config& c) {
  MoeConfig m;
  m.vocab_size = 151936;
  m.hidden_size = 2048;
  m.intermediate_size = 6144;
  m.num_hidden_layers = 24;
  m.num_attention_heads = 32;
  m.num_key_value_heads = 4;
  m.num_experts = 128;
  m.num_experts_per_tok = 8;
  m.qk_norm.make = norm_of_a_head<RMSNorm>;
  read_decoder_config(c, m);
  read_moe_config(c, "num_experts", m);
  read_sparse_steps(c, m);
  m.moe_intermediate_size = c.size({"moe_intermediate_size"}, 768);
  m.norm_topk_prob = c.flag({"norm_topk_prob"}, false);
  m.rope = rope_settings(c, {m.head_dim, 32768});
  m.qkv_bias = m.o_bias = c.flag({"attention_bias"}, false);
  if (c.flag({"use_sliding_window"}, false)) m.sliding_window = sliding_window(c, 4096);
  m.full_mask = !m.sliding_window;  // one mask for all layers
  return m;
}

struct Qwen3MoeSparseMoeBlock : UnaryModule {
  Qwen3MoeSparseMoeBlock(Module& parent, std::string_view name, const MoeConfig& m)
      : UnaryModule(parent, name), experts(*this, "experts", m), gate(*this, "gate", m, true) {}

  Tensor operator()(const Tensor& x) const override {
    Forward here(*this);
    const Tensor hidden = view(x, {-1, x.size(-1)});  // (N, C)
    const auto [logits, routing_weights, selected_experts] = gate(hidden);
    const Tensor out = experts(hidden, selected_experts, routing_weights);
    return reshape(out, x.sizes());
  }

  Experts experts;
  TopKRouter gate;
};

using Qwen3MoeModel = DecoderStack<MoeConfig, MoeDecoderLayer<MoeConfig, Qwen3MoeSparseMoeBlock>>;

std::unique_ptr<Model> make_qwen3_moe(Build& build, const Config& c) {
  const MoeConfig m = qwen3_moe_settings(c);
  return std::make_unique<MoeCausalLM<MoeConfig, Qwen3MoeModel>>(build, m, lm_head(m));
}

std::unique_ptr<Model> make_qwen3_moe_classifier(Build& build, const Config& c) {
  return make_moe_classifier<MoeConfig, Qwen3MoeModel>(build, c, qwen3_moe_settings(c));
}

}  // namespace

const Family& qwen3_moe_family() {
  static const Family kFamily{
      .name = "qwen3_moe",
      .models = {{"qwen3_moe", {"Qwen3MoeForCausalLM"}, InputKind::lm, 2048, make_qwen3_moe},
                 {"qwen3_moe-classifier", {"Qwen3MoeForSequenceClassification"}, InputKind::cls, 2048, make_qwen3_moe_classifier}},
      .presets =
          {{"qwen3-30b-a3b", R"({"num_hidden_layers":48,"head_dim":128,"norm_topk_prob":true})", 4096},
           {"qwen3-235b-a22b",
            R"({"hidden_size":4096,"intermediate_size":12288,"moe_intermediate_size":1536,"num_hidden_layers":94,"num_attention_heads":64,"head_dim":128,"norm_topk_prob":true})",
            4096}},
      .kernels = {.liger_loss = true},
      .programs = {.megatron = MegatronDefaults{.gated = true,
                                                .rope = true,
                                                .rms = true,
                                                .qk_norm = true,
                                                .layers = 24,
                                                .hidden = 2048,
                                                .groups = 4,
                                                .ffn = 6144,
                                                .vocab = 151936,
                                                .experts = 128,
                                                .top_k = 8,
                                                .expert_ffn = 768}},
  };
  return kFamily;
}

}  // namespace plimsoll
