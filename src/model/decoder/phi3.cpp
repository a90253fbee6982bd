// transformers.models.phi3: Phi3ForCausalLM and Phi3ForSequenceClassification. Queries, keys and values come from one layer, and so do
// gate and up.
#include "model/family.h"
#include "nn/decoder.h"

namespace plimsoll {

namespace {

DecoderConfig phi3_settings(const Config& c) {
  DecoderConfig d;
  d.vocab_size = 32064;
  d.hidden_size = 3072;
  d.intermediate_size = 8192;
  d.head_order = HeadOrder::one_projection;
  d.rotary = rotate_part_of_heads;
  d.feed_forward = fused_gated_mlp;
  read_decoder_config(c, d);
  d.branch_dropouts = {"resid_attn_dropout", "resid_mlp_dropout", c.number({"resid_pdrop"}, 0.0)};
  read_window_of_all_layers(c, d, std::nullopt);
  d.rope = rope_settings(c, {d.head_dim, 4096, 1.0, "partial_rotary_factor", {"default", "longrope", "su", "yarn"}});
  if (d.rope.type != "default") d.rope.type = "longrope";  // su and yarn are names that older checkpoints use
  d.rope.original_max_position_embeddings = c.size({"original_max_position_embeddings"}, 4096);
  return d;
}

std::unique_ptr<Model> make_phi3(Build& build, const Config& c) { return make_decoder(build, phi3_settings(c)); }
std::unique_ptr<Model> make_phi3_classifier(Build& build, const Config& c) {
  return make_decoder_classifier(build, c, phi3_settings(c), 32000);
}

}  // namespace

const Family& phi3_family() {
  static const Family kFamily{
      .name = "phi3",
      .models = {{"phi3", {"Phi3ForCausalLM"}, InputKind::lm, 2048, make_phi3},
                 {"phi3-classifier", {"Phi3ForSequenceClassification"}, InputKind::cls, 2048, make_phi3_classifier}},
      .presets =
          {{"phi-3-mini",
            R"({"hidden_size":3072,"intermediate_size":8192,"num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":32,"vocab_size":32064,"sliding_window":2047})",
            4096},
           {"phi-3.5-mini",
            R"({"hidden_size":3072,"intermediate_size":8192,"num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":32,"vocab_size":32064,"sliding_window":262144})",
            4096},
           {"phi-3-medium",
            R"({"hidden_size":5120,"intermediate_size":17920,"num_hidden_layers":40,"num_attention_heads":40,"num_key_value_heads":10,"vocab_size":32064,"sliding_window":2047})",
            4096},
           {"phi-4",
            R"({"hidden_size":5120,"intermediate_size":17920,"num_hidden_layers":40,"num_attention_heads":40,"num_key_value_heads":10,"vocab_size":100352})",
            4096}},
      .kernels = {.liger_loss = true, .liger_layers = true, .cut_cross_entropy = true},
  };
  return kFamily;
}

}  // namespace plimsoll
