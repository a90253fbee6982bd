// transformers.models.glm: GlmForCausalLM and GlmForSequenceClassification. Half of each head is turned, neighbour with neighbour, and gate
// and up come from one layer.
#include "model/family.h"
#include "nn/decoder.h"
#include "nn/transformer.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

// apply_rotary_pos_emb: each frequency of the tables' first half twice in a row
Tensor interleaved(const Tensor& table) {
  const Tensor by_head = unsqueeze(table, 1);
  return repeat_interleave(getitem(by_head, -1, 0, by_head.size(-1) / 2), 2, -1);
}

Rotated rotate_glm_heads(const Tensor& q, const Tensor& k, const CosSin& tables) {
  const Tensor cos = interleaved(tables.cos), sin = interleaved(tables.sin);
  return rotate_parts(q, k, cos, sin, rotate_neighbours);
}

DecoderConfig glm_settings(const Config& c) {
  DecoderConfig d;
  d.vocab_size = 151552;
  d.intermediate_size = 13696;
  d.num_hidden_layers = 40;
  d.num_key_value_heads = 2;
  d.head_dim = 128;
  d.rotary = rotate_glm_heads;
  d.feed_forward = fused_gated_mlp;
  read_decoder_config(c, d);
  reject_captured_outputs(c);
  d.rope = rope_settings(c, {d.head_dim, 131072, 0.5});
  d.qkv_bias = c.flag({"attention_bias"}, true);
  return d;
}

std::unique_ptr<Model> make_glm(Build& build, const Config& c) { return make_decoder(build, glm_settings(c)); }
std::unique_ptr<Model> make_glm_classifier(Build& build, const Config& c) {
  return make_decoder_classifier(build, c, glm_settings(c), 151329);
}

}  // namespace

const Family& glm_family() {
  static const Family kFamily{
      .name = "glm",
      .models = {{"glm", {"GlmForCausalLM"}, InputKind::lm, 2048, make_glm},
                 {"glm-classifier", {"GlmForSequenceClassification"}, InputKind::cls, 2048, make_glm_classifier}},
      .presets = {{"glm-4-9b", R"({})", 4096}},
  };
  return kFamily;
}

}  // namespace plimsoll
