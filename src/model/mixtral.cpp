// transformers.models.mixtral: MixtralForCausalLM and MixtralForSequenceClassification.
#include "model/families.h"
#include "nn/moe_decoder.h"
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
    sliding_window = plimsoll::sliding_window(c, std::nullopt);
    full_mask = !sliding_window;  // one mask for all layers
    jitter = c.number({"router_jitter_noise"}, 0.0) > 0;
  }
  bool jitter = false;
};

struct MixtralSparseMoeBlock : Module {
  MixtralSparseMoeBlock(Module& parent, std::string_view name, const MixtralConfig& c)
      : Module(parent, name), config(c), gate(*this, "gate", c, false), experts(*this, "experts", c) {}

  Tensor operator()(const Tensor& x) const {
    Forward here(*this);
    Tensor hidden = x;
    if (config.jitter) hidden = mul_(hidden, nondiff("empty_like", hidden, hidden.dtype()));
    hidden = view(hidden, {-1, x.size(-1)});  // (N, C)
    const auto [logits, top_k_weights, top_k_index] = gate(hidden);
    hidden = experts(hidden, top_k_index, top_k_weights);
    return reshape(hidden, x.sizes());
  }

  const MixtralConfig& config;
  TopKRouter gate;
  Experts experts;
};

using MixtralModel = DecoderStack<MixtralConfig, MoeDecoderLayer<MixtralConfig, MixtralSparseMoeBlock>, RMSNorm>;

}  // namespace

std::unique_ptr<Model> make_mixtral(Build& build, const Config& c) {
  const MixtralConfig settings(c);
  return std::make_unique<MoeCausalLM<MixtralConfig, MixtralModel>>(build, settings, lm_head(settings));
}

std::unique_ptr<Model> make_mixtral_classifier(Build& build, const Config& c) {
  return make_moe_classifier<MixtralConfig, MixtralModel>(build, c, MixtralConfig(c));
}

}  // namespace plimsoll
