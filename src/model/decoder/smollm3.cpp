// transformers.models.smollm3: SmolLM3ForCausalLM, Llama with layers that know no positions.
#include <nlohmann/json.hpp>

#include "model/family.h"
#include "nn/decoder_stack.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

struct SmolLM3Config : DecoderConfig {
  explicit SmolLM3Config(const Config& c) {
    vocab_size = 128256;
    hidden_size = 2048;
    intermediate_size = 11008;
    num_hidden_layers = 36;
    num_attention_heads = 16;
    num_key_value_heads = 4;
    tie_word_embeddings = true;
    read_decoder_config(c, *this);
    rope = rope_settings(c, {head_dim, 32768});
    c.require_divides("num_attention_heads", num_attention_heads, "hidden_size", hidden_size);
    qkv_bias = o_bias = c.flag({"attention_bias"}, false);
    mlp_bias = c.flag({"mlp_bias"}, false);
    if (c.flag({"use_sliding_window"}, false))
      throw Error("[" + c.source() + "] use_sliding_window true is not simulated", "leave it out, as the published models do");
    read_no_rope_layers(c);
  }

  void read_no_rope_layers(const Config& c) {
    const int64_t interval = c.size({"no_rope_layer_interval"}, 4);
    for (int64_t i = 0; i < num_hidden_layers; ++i) use_rope.push_back((i + 1) % interval != 0);
    const nlohmann::json* list = c.find({"no_rope_layers"});
    if (!list) return;
    if (!list->is_array() || list->size() < use_rope.size())
      throw Error("[" + c.source() + "] no_rope_layers is not a list with a number for each layer", "1: with positions, 0: without");
    for (size_t i = 0; i < use_rope.size(); ++i) {
      if (!(*list)[i].is_number_integer() && !(*list)[i].is_boolean())
        throw Error("[" + c.source() + "] no_rope_layers has " + dump((*list)[i]).substr(0, 40), "1: with positions, 0: without");
      use_rope[i] = (*list)[i].is_boolean() ? (*list)[i].get<bool>() : (*list)[i].get<int64_t>() != 0;
    }
  }

  std::vector<bool> use_rope;  // by layer
};

struct SmolLM3Attention : DecoderAttention {
  SmolLM3Attention(Module& parent, std::string_view name, const SmolLM3Config& c, size_t layer)
      : DecoderAttention(parent, name, c), use_rope(c.use_rope[layer]) {}

  Tensor operator()(const Tensor& x, const CosSin& tables, const Tensor& mask, Tensor* weights) const {
    if (use_rope) return DecoderAttention::operator()(x, tables, mask, weights);
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

  bool use_rope;
};

using SmolLM3DecoderLayer = PreNormLayer<RMSNorm, SmolLM3Attention, SmolLM3Config>;

using SmolLM3Model = DecoderStack<SmolLM3Config, SmolLM3DecoderLayer, RMSNorm>;

std::unique_ptr<Model> make_smollm3(Build& build, const Config& c) {
  const SmolLM3Config config(c);
  return std::make_unique<CausalLM<SmolLM3Config, SmolLM3Model>>(build, config, lm_head(config));
}

}  // namespace

const Family& smollm3_family() {
  static const Family kFamily{
      .name = "smollm3",
      .models = {{"smollm3", {"SmolLM3ForCausalLM"}, InputKind::lm, 2048, make_smollm3}},
      .presets = {{"smollm3-3b", R"({})", 4096}},
      .kernels = {.liger_loss = true},
  };
  return kFamily;
}

}  // namespace plimsoll
