// transformers.models.qwen2_moe: Qwen2MoeForCausalLM and Qwen2MoeForSequenceClassification. An expert that every token has, behind a
// gate of its own, beside those that it is sent to.
#include "model/family.h"
#include "nn/moe_decoder.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

struct Qwen2MoeConfig : MoeConfig {
  explicit Qwen2MoeConfig(const Config& c) {
    vocab_size = 151936;
    hidden_size = 2048;
    intermediate_size = 5632;
    num_hidden_layers = 24;
    num_attention_heads = 16;
    num_key_value_heads = 16;
    num_experts = 60;
    num_experts_per_tok = 4;
    read_decoder_config(c, *this);
    read_moe_config(c, "num_experts", *this);
    read_sparse_steps(c, *this);
    moe_intermediate_size = c.size({"moe_intermediate_size"}, 1408);
    shared_expert_intermediate_size = c.size({"shared_expert_intermediate_size"}, 5632);
    norm_topk_prob = c.flag({"norm_topk_prob"}, false);
    rope = rope_settings(c, {head_dim, 32768});
    qkv_bias = c.flag({"qkv_bias"}, true);
    read_window(c);
  }

  // Every other layer below max_window_layers, unless layer_types says otherwise.
  void read_window(const Config& c) {
    const bool on = c.flag({"use_sliding_window"}, false);
    const int64_t last = c.integer({"max_window_layers"}, 28);
    std::vector<bool> slides(static_cast<size_t>(num_hidden_layers));
    for (size_t i = 0; i < slides.size(); ++i) slides[i] = on && i % 2 == 0 && static_cast<int64_t>(i) < last;
    sliding_layer = sliding_layers(c, slides);
    sliding_window = on ? plimsoll::sliding_window(c, 4096) : 0;  // the mask of windows is made in any case
    if (!sliding_window)
      throw Error("[" + c.source() + "] sliding_window null: its mask is always made", "give sliding_window a number of tokens");
  }
  int64_t shared_expert_intermediate_size = 5632;
};

struct Qwen2MoeSparseMoeBlock : UnaryModule {
  Qwen2MoeSparseMoeBlock(Module& parent, std::string_view name, const Qwen2MoeConfig& c) : UnaryModule(parent, name), config(c) {}

  Tensor operator()(const Tensor& x) const override {
    Forward here(*this);
    const Tensor hidden = view(x, {-1, x.size(-1)});  // (N, C)
    Tensor shared = shared_expert(hidden);
    const auto [logits, routing_weights, selected_experts] = gate(hidden);
    Tensor out = experts(hidden, selected_experts, routing_weights);
    {
      Tensor share = shared_expert_gate(hidden);  // (N, 1)
      share = sigmoid(share);
      shared = mul(share, shared);
    }
    out = add(out, shared);
    return reshape(out, x.sizes());
  }

  const Qwen2MoeConfig& config;
  TopKRouter gate{*this, "gate", config, true};
  Experts experts{*this, "experts", config};
  GatedMLP shared_expert{*this, "shared_expert", config.hidden_size, config.shared_expert_intermediate_size, false, config.hidden_act};
  Linear shared_expert_gate{*this, "shared_expert_gate", config.hidden_size, 1, false};
};

using Qwen2MoeModel = DecoderStack<Qwen2MoeConfig, MoeDecoderLayer<Qwen2MoeConfig, Qwen2MoeSparseMoeBlock>>;

std::unique_ptr<Model> make_qwen2_moe(Build& build, const Config& c) {
  const Qwen2MoeConfig settings(c);
  return std::make_unique<MoeCausalLM<Qwen2MoeConfig, Qwen2MoeModel>>(build, settings, lm_head(settings));
}

std::unique_ptr<Model> make_qwen2_moe_classifier(Build& build, const Config& c) {
  return make_moe_classifier<Qwen2MoeConfig, Qwen2MoeModel>(build, c, Qwen2MoeConfig(c));
}

}  // namespace

const Family& qwen2_moe_family() {
  static const Family kFamily{
      .name = "qwen2_moe",
      .models = {{"qwen2_moe", {"Qwen2MoeForCausalLM"}, InputKind::lm, 2048, make_qwen2_moe},
                 {"qwen2_moe-classifier", {"Qwen2MoeForSequenceClassification"}, InputKind::cls, 2048, make_qwen2_moe_classifier}},
      .presets = {{"qwen1.5-moe-a2.7b", R"({})", 4096}},
  };
  return kFamily;
}

}  // namespace plimsoll
