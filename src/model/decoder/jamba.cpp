// transformers.models.jamba: JambaForCausalLM and JambaForSequenceClassification. Layers of Mamba, some of attention without positions
// among them, and experts in every other one.
#include "model/family.h"
#include "nn/mamba_mixer.h"
#include "nn/moe_decoder.h"
#include "ops/index.h"
#include "ops/loss.h"
#include "ops/reduce.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

struct JambaConfig : MoeConfig {
  JambaConfig(const Config& c, bool has_kernels) {
    vocab_size = 65536;
    intermediate_size = 14336;
    num_key_value_heads = 8;
    num_experts = 16;
    read_decoder_config(c, *this);
    read_moe_config(c, "num_experts", *this);
    moe_intermediate_size = intermediate_size;
    const int64_t attention_period = c.size({"attn_layer_period"}, 8), attention_offset = c.integer({"attn_layer_offset"}, 4);
    const int64_t expert_period = c.size({"expert_layer_period"}, 2), expert_offset = c.integer({"expert_layer_offset"}, 1);
    require_below(c, "attn_layer_offset", attention_offset, "attn_layer_period", attention_period);
    require_below(c, "expert_layer_offset", expert_offset, "expert_layer_period", expert_period);
    for (int64_t i = 0; i < num_hidden_layers; ++i) {
      attends.push_back(i % attention_period == attention_offset);
      sparse_layer.push_back(num_experts > 1 && i % expert_period == expert_offset);
    }
    mamba.hidden_size = hidden_size;
    mamba.state_size = c.size({"mamba_d_state"}, 16);
    mamba.intermediate_size = checked_mul(hidden_size, c.size({"mamba_expand"}, 2));
    mamba.conv_kernel = c.size({"mamba_d_conv"}, 4);
    mamba.time_step_rank = time_step_rank(c, "mamba_dt_rank", hidden_size);
    mamba.use_bias = c.flag({"mamba_proj_bias"}, false);
    mamba.use_conv_bias = c.flag({"mamba_conv_bias"}, true);
    mamba.use_mamba_kernels = c.flag({"use_mamba_kernels"}, true) && has_kernels;
    mamba.inner_norms = true;
    mamba.hidden_act = hidden_act;
    check_mamba_kernels(c, mamba, "mamba_d_conv", "mamba_d_state");
  }

  static void require_below(const Config& c, const char* key, int64_t offset, const char* period_key, int64_t period) {
    if (offset >= 0 && offset < period) return;
    throw Error("[" + c.source() + "] " + key + " " + std::to_string(offset) + " is not below " + period_key + " " + std::to_string(period),
                "it counts the layers before the first one");
  }

  std::vector<bool> attends;  // by layer; the others have Mamba
  MambaMixerSettings mamba;
};

struct JambaAttention : Module {
  JambaAttention(Module& parent, std::string_view name, const JambaConfig& c) : Module(parent, name), config(c) {}

  Tensor operator()(const Tensor& x, const Tensor& mask, Tensor* weights) const {
    Forward here(*this);
    const Dims heads{x.size(0), x.size(1), -1, config.head_dim};
    const Tensor q = transpose(view(q_proj(x), heads), 1, 2);  // (B, H, T, D)
    const Tensor k = transpose(view(k_proj(x), heads), 1, 2);  // (B, KV, T, D)
    const Tensor v = transpose(view(v_proj(x), heads), 1, 2);  // (B, KV, T, D)
    AttentionCall call;
    call.mask = mask;
    call.dropout = config.attention_dropout;
    call.kv_groups = config.num_attention_heads / config.num_key_value_heads;
    Tensor out = attention(build(), q, k, v, call, weights);     // (B, T, H, D)
    out = contiguous(reshape(out, {x.size(0), x.size(1), -1}));  // (B, T, H D)
    out = o_proj(out);                                           // (B, T, C)
    return out;
  }

  const JambaConfig& config;
  Linear q_proj{*this, "q_proj", config.hidden_size, (config.num_attention_heads * config.head_dim), false};
  Linear k_proj{*this, "k_proj", config.hidden_size, (config.num_key_value_heads * config.head_dim), false};
  Linear v_proj{*this, "v_proj", config.hidden_size, (config.num_key_value_heads * config.head_dim), false};
  Linear o_proj{*this, "o_proj", (config.num_attention_heads * config.head_dim), config.hidden_size, false};
};

struct JambaSparseMoeBlock : Module {
  JambaSparseMoeBlock(Module& parent, std::string_view name, const JambaConfig& c) : Module(parent, name), config(c) {}

  TopK route_tokens_to_experts(const Tensor& router_logits, DType dtype) const {
    const Tensor routing_weights = softmax(router_logits, DType::float32);
    const TopK top = topk(routing_weights, config.num_experts_per_tok);
    return {to(top.values, dtype), top.indices};
  }

  Tensor operator()(const Tensor& x) const {
    Forward here(*this);
    Tensor hidden = view(x, {-1, x.size(-1)});    // (N, C)
    const Tensor router_logits = router(hidden);  // (N, E)
    config.take(router_logits);
    const TopK top = route_tokens_to_experts(router_logits, hidden.dtype());
    hidden = experts(hidden, top.indices, top.values);
    return reshape(hidden, x.sizes());
  }

  const JambaConfig& config;
  Linear router{*this, "router", config.hidden_size, config.num_experts, false};
  Experts experts{*this, "experts", config};
};

struct JambaDecoderLayer : Module {
  JambaDecoderLayer(Module& parent, std::string_view name, const JambaConfig& c, size_t index)
      : Module(parent, name),
        config(c),
        self_attn(c.attends[index] ? std::make_unique<JambaAttention>(*this, "self_attn", c) : nullptr),
        mamba(self_attn ? nullptr : std::make_unique<MambaMixer>(*this, "mamba", c.mamba)),
        sparse(c.is_sparse(index) ? std::make_unique<JambaSparseMoeBlock>(*this, "feed_forward", c) : nullptr),
        dense(sparse ? nullptr
                     : std::make_unique<GatedMLP>(*this, "feed_forward", c.hidden_size, c.intermediate_size, false, c.hidden_act)) {}

  Tensor operator()(const Tensor& x, const Tensor& causal_mask, const Tensor& mamba_mask) const {
    Forward here(*this);
    Tensor weights, residual = x;
    Tensor hidden = input_layernorm(x);  // (B, T, C)
    hidden = self_attn ? run_attention(*self_attn, hidden, &weights, causal_mask) : (*mamba)(hidden, mamba_mask);
    hidden = add(residual, hidden);
    residual = hidden;
    hidden = pre_ff_layernorm(hidden);
    hidden = sparse ? run_part(*sparse, hidden) : run_part(*dense, hidden);
    hidden = add(residual, hidden);
    return hidden;
  }

  const JambaConfig& config;
  std::unique_ptr<JambaAttention> self_attn;
  std::unique_ptr<MambaMixer> mamba;
  std::unique_ptr<JambaSparseMoeBlock> sparse;
  std::unique_ptr<GatedMLP> dense;
  RMSNorm input_layernorm{*this, "input_layernorm", config.hidden_size};
  RMSNorm pre_ff_layernorm{*this, "pre_ff_layernorm", config.hidden_size};
};

struct JambaModel : Module {
  JambaModel(Module& parent, std::string_view name, const JambaConfig& c) : Module(parent, name), config(c) {}

  Module& add_layers() {
    for (int64_t i = 0; i < config.num_hidden_layers; ++i) layers.add(config, static_cast<size_t>(i));
    return *this;
  }

  // _update_mamba_mask: a mask that hides nothing is not used.
  Tensor mamba_mask() const {
    const Batch* batch = build().batch;
    if (!batch || !batch->attention_mask) return {};
    all(compare_scalar("eq", batch->attention_mask));
    const bool hides_nothing = tape().dialect.item.value_or(batch->shape.padding != Padding::mask) != 0;
    return hides_nothing ? Tensor() : batch->attention_mask;
  }

  Tensor operator()(const Tensor& input_ids) {
    Forward here(*this);
    const Tensor embeds = embed_tokens(input_ids);  // (B, T, C)
    const Tensor positions = position_ids(build(), embeds.size(1));
    const Tensor causal_mask = create_causal_mask(build(), {embeds.size(0), embeds.size(1), embeds.size(1), embeds.dtype(), positions, {}});
    const Tensor mask = mamba_mask();
    Tensor hidden = embeds;
    build().position_ids = positions;
    for (JambaDecoderLayer& layer : layers) {
      auto run = [&layer, causal_mask, mask, positions](const Tensor& x) { return layer(x, causal_mask, mask); };
      hidden = run_block(layer, run, hidden);
    }
    build().position_ids.reset();
    hidden = final_layernorm(hidden);
    return hidden;
  }

  const Tensor& embedding() const { return embed_tokens.weight; }

  const JambaConfig& config;
  Embedding embed_tokens{*this, "embed_tokens", config.vocab_size, config.hidden_size};
  ModuleList<JambaDecoderLayer> layers{*this, "layers"};
  RMSNorm final_layernorm{add_layers(), "final_layernorm", config.hidden_size};
};

JambaConfig settings_for(const Build& build, const Config& c) { return {c, !build.tape.dialect.recorder}; }

std::unique_ptr<Model> make_jamba(Build& build, const Config& c) {
  const JambaConfig settings = settings_for(build, c);
  return std::make_unique<MoeCausalLM<JambaConfig, JambaModel>>(build, settings, lm_head(settings));
}

std::unique_ptr<Model> make_jamba_classifier(Build& build, const Config& c) {
  return make_moe_classifier<JambaConfig, JambaModel>(build, c, settings_for(build, c), 0);
}

}  // namespace

const Family& jamba_family() {
  static const Family kFamily{
      .name = "jamba",
      .models = {{"jamba", {"JambaForCausalLM"}, InputKind::lm, 2048, make_jamba},
                 {"jamba-classifier", {"JambaForSequenceClassification"}, InputKind::cls, 2048, make_jamba_classifier}},
      .presets = {{"jamba-v0.1", R"({})", 4096}},
  };
  return kFamily;
}

}  // namespace plimsoll
