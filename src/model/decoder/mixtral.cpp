// transformers.models.mixtral: MixtralForCausalLM and MixtralForSequenceClassification.
#include "model/family.h"
#include "nn/moe_decoder.h"
#include "ops/index.h"
#include "ops/index_copy.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

struct MixtralConfig : MoeConfig {
  explicit MixtralConfig(const Config& c) {
    intermediate_size = 14336;
    num_key_value_heads = 8;
    read_decoder_config(c, *this);
    read_moe_config(c, "num_local_experts", *this);
    rope = rope_settings(c, {head_dim, 131072});
    moe_intermediate_size = intermediate_size;
    read_window_of_all_layers(c, *this, std::nullopt);
    jitter = c.number({"router_jitter_noise"}, 0.0) > 0;
  }
  bool jitter = false;
};

// Before transformers 5 an expert was a module of three linear layers (v4.48.1, modeling_mixtral.py, MixtralBlockSparseTop2MLP).
struct MixtralExpert : Module {
  MixtralExpert(Module& parent, std::string_view name, const MixtralConfig& c) : Module(parent, name), config(c), act(c.hidden_act) {}

  Tensor operator()(const Tensor& x) const {
    Forward here(*this);
    Tensor hidden = w1(x);  // (n, F)
    hidden = activation(act, hidden);
    {
      const Tensor up = w3(x);
      hidden = mul(hidden, up);
    }
    hidden = w2(hidden);
    return hidden;  // (n, C)
  }

  const MixtralConfig& config;
  std::string act;
  Linear w1{*this, "w1", config.hidden_size, config.moe_intermediate_size, false};
  Linear w2{*this, "w2", config.moe_intermediate_size, config.hidden_size, false};
  Linear w3{*this, "w3", config.hidden_size, config.moe_intermediate_size, false};
};

struct MixtralSparseMoeBlock : UnaryModule {
  MixtralSparseMoeBlock(Module& parent, std::string_view name, const MixtralConfig& c) : UnaryModule(parent, name), config(c) {
    if (build().transformers >= Version{5, 0})
      experts = std::make_unique<Experts>(*this, "experts", c);
    else
      for (int64_t i = 0; i < c.num_experts; ++i) loop.add(c);
  }

  // Its loop over experts, each with an equal share of the tokens: all pairs together are as many however they are spread.
  Tensor one_by_one(const Tensor& hidden, const Routing& routing) const {
    const int64_t pairs = checked_mul(hidden.size(0), config.num_experts_per_tok), share = std::max<int64_t>(1, pairs / config.num_experts);
    const Tensor weights = to(routing.weights, hidden.dtype());
    Tensor final_hidden = filled(tape(), "zeros", hidden.sizes(), hidden.dtype());
    const Tensor expert_mask = filled(tape(), "one_hot", {config.num_experts, config.num_experts_per_tok, hidden.size(0)}, DType::int64);
    for (const MixtralExpert& expert : loop) {
      const Tensor idx = filled(tape(), "nonzero", {share}, DType::int64), top_x = filled(tape(), "nonzero", {share}, DType::int64);
      const Tensor current = index(hidden, top_x);  // (n, C)
      Tensor result = expert(current);
      {
        const Tensor scale = index(reshape(weights, {-1, 1}), top_x);  // (n, 1)
        result = mul(result, scale);
      }
      final_hidden = index_add_(final_hidden, top_x, to(result, hidden.dtype()));
    }
    return final_hidden;
  }

  Tensor operator()(const Tensor& x) const override {
    Forward here(*this);
    Tensor hidden = x;
    if (config.jitter) hidden = mul_(hidden, nondiff("empty_like", hidden, hidden.dtype()));
    hidden = view(hidden, {-1, x.size(-1)});  // (N, C)
    const Routing routing = gate(hidden);
    hidden = experts ? (*experts)(hidden, routing.indices, routing.weights) : one_by_one(hidden, routing);
    return reshape(hidden, x.sizes());
  }

  const MixtralConfig& config;
  TopKRouter gate{*this, "gate", config, false};
  ModuleList<MixtralExpert> loop{*this, "experts"};
  std::unique_ptr<Experts> experts;
};

using MixtralModel = DecoderStack<MixtralConfig, MoeDecoderLayer<MixtralConfig, MixtralSparseMoeBlock>>;

std::unique_ptr<Model> make_mixtral(Build& build, const Config& c) {
  const MixtralConfig settings(c);
  return std::make_unique<MoeCausalLM<MixtralConfig, MixtralModel>>(build, settings, lm_head(settings));
}

std::unique_ptr<Model> make_mixtral_classifier(Build& build, const Config& c) {
  return make_moe_classifier<MixtralConfig, MixtralModel>(build, c, MixtralConfig(c));
}

}  // namespace

const Family& mixtral_family() {
  static const Family kFamily{
      .name = "mixtral",
      .models = {{"mixtral", {"MixtralForCausalLM"}, InputKind::lm, 2048, make_mixtral},
                 {"mixtral-classifier", {"MixtralForSequenceClassification"}, InputKind::cls, 2048, make_mixtral_classifier}},
      .presets = {{"mixtral-8x7b", R"({})", 4096},
                  {"mixtral-8x22b", R"({"hidden_size":6144,"intermediate_size":16384,"num_hidden_layers":56,"num_attention_heads":48})",
                   4096}},
      .adapters = {.lora = {"q_proj", "v_proj"}, .ia3 = {"k_proj", "v_proj", "w2"}, .feedforward = {"w2"}},
      .kernels = {.liger_loss = true},
      .programs = {.megatron = MegatronDefaults{.gated = true, .rope = true, .rms = true, .groups = 8, .ffn = 14336, .experts = 8}},
  };
  return kFamily;
}

}  // namespace plimsoll
