// transformers.models.smollm3: SmolLM3ForCausalLM, Llama with layers that know no positions.
#include <nlohmann/json.hpp>

#include "model/family.h"
#include "nn/decoder.h"

namespace plimsoll {

namespace {

// Which layers have positions: no_rope_layers, or all but each no_rope_layer_interval-th.
std::vector<bool> rotating_layers(const Config& c, int64_t layers) {
  std::vector<bool> rotates = all_but_each(c.size({"no_rope_layer_interval"}, 4), layers);
  const nlohmann::json* list = c.find({"no_rope_layers"});
  if (!list) return rotates;
  if (!list->is_array() || list->size() < rotates.size())
    throw Error("[" + c.source() + "] no_rope_layers is not a list with a number for each layer", "1: with positions, 0: without");
  for (size_t i = 0; i < rotates.size(); ++i) {
    const nlohmann::json& value = (*list)[i];
    if (!value.is_number_integer() && !value.is_boolean())
      throw Error("[" + c.source() + "] no_rope_layers has " + dump(value).substr(0, 40), "1: with positions, 0: without");
    rotates[i] = value.is_boolean() ? value.get<bool>() : value.get<int64_t>() != 0;
  }
  return rotates;
}

DecoderConfig smollm3_settings(const Config& c) {
  DecoderConfig d;
  d.vocab_size = 128256;
  d.hidden_size = 2048;
  d.intermediate_size = 11008;
  d.num_hidden_layers = 36;
  d.num_attention_heads = 16;
  d.num_key_value_heads = 4;
  d.tie_word_embeddings = true;
  read_decoder_config(c, d);
  d.rope = rope_settings(c, {d.head_dim, 32768});
  c.require_divides("num_attention_heads", d.num_attention_heads, "hidden_size", d.hidden_size);
  d.qkv_bias = d.o_bias = c.flag({"attention_bias"}, false);
  d.mlp_bias = c.flag({"mlp_bias"}, false);
  if (c.flag({"use_sliding_window"}, false))
    throw Error("[" + c.source() + "] use_sliding_window true is not simulated", "leave it out, as the published models do");
  d.rotates = rotating_layers(c, d.num_hidden_layers);
  return d;
}

std::unique_ptr<Model> make_smollm3(Build& build, const Config& c) { return make_decoder(build, smollm3_settings(c)); }

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
