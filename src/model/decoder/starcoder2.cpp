// transformers.models.starcoder2: Starcoder2ForCausalLM and Starcoder2ForSequenceClassification. A plain feed-forward, layer norms, and
// biases everywhere.
#include "model/family.h"
#include "nn/decoder.h"
#include "nn/feed_forward.h"
#include "nn/transformer.h"

namespace plimsoll {

namespace {

std::unique_ptr<UnaryModule> starcoder2_mlp(Module& parent, std::string_view name, const DecoderConfig& d, size_t) {
  return std::make_unique<FeedForward>(
      parent, name, FeedForwardSettings{"c_fc", "c_proj", d.hidden_size, d.intermediate_size, d.hidden_act, d.output_dropout, d.mlp_bias});
}

DecoderConfig starcoder2_settings(const Config& c) {
  DecoderConfig d;
  d.vocab_size = 49152;
  d.hidden_size = 3072;
  d.intermediate_size = 12288;
  d.num_hidden_layers = 30;
  d.num_attention_heads = 24;
  d.num_key_value_heads = 2;
  d.hidden_act = "gelu_pytorch_tanh";
  d.tie_word_embeddings = true;
  d.norm = norm_of<LayerNorm>;
  d.feed_forward = starcoder2_mlp;
  read_decoder_config(c, d);
  reject_captured_outputs(c);
  d.rope = rope_settings(c, {d.head_dim, 4096});
  d.qkv_bias = d.o_bias = d.mlp_bias = c.flag({"use_bias"}, true);
  d.output_dropout = c.number({"residual_dropout"}, 0.0);
  d.embed_dropout = c.number({"embedding_dropout"}, 0.0);
  read_window_of_all_layers(c, d, std::nullopt);
  return d;
}

std::unique_ptr<Model> make_starcoder2(Build& build, const Config& c) { return make_decoder(build, starcoder2_settings(c)); }
std::unique_ptr<Model> make_starcoder2_classifier(Build& build, const Config& c) {
  return make_decoder_classifier(build, c, starcoder2_settings(c));
}

}  // namespace

const Family& starcoder2_family() {
  static const Family kFamily{
      .name = "starcoder2",
      .models = {{"starcoder2", {"Starcoder2ForCausalLM"}, InputKind::lm, 2048, make_starcoder2},
                 {"starcoder2-classifier", {"Starcoder2ForSequenceClassification"}, InputKind::cls, 2048, make_starcoder2_classifier}},
      .presets =
          {{"starcoder2-3b", R"({"sliding_window":4096})", 4096},
           {"starcoder2-7b",
            R"({"hidden_size":4608,"intermediate_size":18432,"num_hidden_layers":32,"num_attention_heads":36,"num_key_value_heads":4,"sliding_window":4096})",
            4096},
           {"starcoder2-15b",
            R"({"hidden_size":6144,"intermediate_size":24576,"num_hidden_layers":40,"num_attention_heads":48,"num_key_value_heads":4,"sliding_window":4096,"tie_word_embeddings":false})",
            4096}},
  };
  return kFamily;
}

}  // namespace plimsoll
