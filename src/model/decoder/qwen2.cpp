// transformers.models.qwen2: Qwen2ForCausalLM and Qwen2ForSequenceClassification.
#include "model/family.h"
#include "nn/decoder.h"
#include "nn/text_encoder.h"

namespace plimsoll {

namespace {

DecoderConfig qwen2_settings(const Config& c) {
  DecoderConfig d;
  d.vocab_size = 151936;
  d.intermediate_size = 22016;
  d.num_key_value_heads = 32;
  read_decoder_config(c, d);
  d.rope = rope_settings(c, {d.head_dim, 32768});
  d.qkv_bias = true;
  read_optional_window(c, d);
  return d;
}

std::unique_ptr<Model> make_qwen2(Build& build, const Config& c) { return make_decoder(build, qwen2_settings(c)); }
std::unique_ptr<Model> make_qwen2_classifier(Build& build, const Config& c) { return make_decoder_classifier(build, c, qwen2_settings(c)); }

std::unique_ptr<TextEncoder> make_qwen2_text_model(Module& parent, std::string_view name, const Config& c) {
  return make_decoder_text_encoder(parent, name, qwen2_settings(c));
}

}  // namespace

const Family& qwen2_family() {
  static const Family kFamily{
      .name = "qwen2",
      .models = {{"qwen2", {"Qwen2ForCausalLM"}, InputKind::lm, 2048, make_qwen2, make_qwen2_text_model},
                 {"qwen2-classifier", {"Qwen2ForSequenceClassification"}, InputKind::cls, 2048, make_qwen2_classifier}},
      .presets =
          {{"qwen2-0.5b",
            R"({"hidden_size":896,"intermediate_size":4864,"num_hidden_layers":24,"num_attention_heads":14,"num_key_value_heads":2,"vocab_size":151936,"tie_word_embeddings":true})",
            2048},
           {"qwen2-1.5b",
            R"({"hidden_size":1536,"intermediate_size":8960,"num_hidden_layers":28,"num_attention_heads":12,"num_key_value_heads":2,"vocab_size":151936,"tie_word_embeddings":true})",
            2048},
           {"qwen2-7b",
            R"({"hidden_size":3584,"intermediate_size":18944,"num_hidden_layers":28,"num_attention_heads":28,"num_key_value_heads":4,"vocab_size":152064,"tie_word_embeddings":false})",
            2048},
           {"qwen2.5-0.5b",
            R"({"hidden_size":896,"intermediate_size":4864,"num_hidden_layers":24,"num_attention_heads":14,"num_key_value_heads":2,"vocab_size":151936,"tie_word_embeddings":true})",
            2048},
           {"qwen2.5-1.5b",
            R"({"hidden_size":1536,"intermediate_size":8960,"num_hidden_layers":28,"num_attention_heads":12,"num_key_value_heads":2,"vocab_size":151936,"tie_word_embeddings":true})",
            2048},
           {"qwen2.5-7b",
            R"({"hidden_size":3584,"intermediate_size":18944,"num_hidden_layers":28,"num_attention_heads":28,"num_key_value_heads":4,"vocab_size":152064,"tie_word_embeddings":false})",
            2048},
           {"qwen2.5-3b",
            R"({"hidden_size":2048,"intermediate_size":11008,"num_hidden_layers":36,"num_attention_heads":16,"num_key_value_heads":2,"vocab_size":151936,"tie_word_embeddings":true})",
            2048},
           {"qwen2.5-14b",
            R"({"hidden_size":5120,"intermediate_size":13824,"num_hidden_layers":48,"num_attention_heads":40,"num_key_value_heads":8,"vocab_size":152064,"tie_word_embeddings":false})",
            2048},
           {"qwen2.5-32b",
            R"({"hidden_size":5120,"intermediate_size":27648,"num_hidden_layers":64,"num_attention_heads":40,"num_key_value_heads":8,"vocab_size":152064,"tie_word_embeddings":false})",
            2048},
           {"qwen2.5-72b",
            R"({"hidden_size":8192,"intermediate_size":29568,"num_hidden_layers":80,"num_attention_heads":64,"num_key_value_heads":8,"vocab_size":152064,"tie_word_embeddings":false})",
            2048}},
      .adapters = {.lora = {"q_proj", "v_proj"},
                   .ia3 = {"q_proj", "v_proj", "down_proj"},
                   .feedforward = {"down_proj"},
                   .ln_tuning = {"post_attention_layernorm"}},
      .tensor_plan = TensorPlan{.sequence = true},
      .kernels = {.liger_loss = true, .liger_layers = true, .cut_cross_entropy = true},
      .programs = {.megatron =
                       MegatronDefaults{
                           .gated = true, .rope = true, .rms = true, .qkv_bias = true, .groups = 32, .ffn = 22016, .vocab = 151936}},
  };
  return kFamily;
}

}  // namespace plimsoll
