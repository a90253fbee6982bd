// transformers.models.qwen3: Qwen3ForCausalLM and Qwen3ForSequenceClassification.
#include "model/family.h"
#include "nn/decoder.h"

namespace plimsoll {

namespace {

DecoderConfig qwen3_settings(const Config& c) {
  DecoderConfig d;
  d.vocab_size = 151936;
  d.intermediate_size = 22016;
  d.num_key_value_heads = 32;
  d.head_dim = 128;
  d.qk_norm.make = norm_of_a_head<RMSNorm>;
  read_decoder_config(c, d);
  d.rope = rope_settings(c, {d.head_dim, 32768});
  d.qkv_bias = d.o_bias = c.flag({"attention_bias"}, false);
  read_optional_window(c, d);
  return d;
}

std::unique_ptr<Model> make_qwen3(Build& build, const Config& c) { return make_decoder(build, qwen3_settings(c)); }
std::unique_ptr<Model> make_qwen3_classifier(Build& build, const Config& c) { return make_decoder_classifier(build, c, qwen3_settings(c)); }

}  // namespace

const Family& qwen3_family() {
  static const Family kFamily{
      .name = "qwen3",
      .models = {{"qwen3", {"Qwen3ForCausalLM"}, InputKind::lm, 2048, make_qwen3},
                 {"qwen3-classifier", {"Qwen3ForSequenceClassification"}, InputKind::cls, 2048, make_qwen3_classifier}},
      .presets =
          {{"qwen3-0.6b",
            R"({"hidden_size":1024,"intermediate_size":3072,"num_hidden_layers":28,"num_attention_heads":16,"num_key_value_heads":8,"head_dim":128,"vocab_size":151936,"tie_word_embeddings":true})",
            2048},
           {"qwen3-1.7b",
            R"({"hidden_size":2048,"intermediate_size":6144,"num_hidden_layers":28,"num_attention_heads":16,"num_key_value_heads":8,"head_dim":128,"vocab_size":151936,"tie_word_embeddings":true})",
            2048},
           {"qwen3-4b",
            R"({"hidden_size":2560,"intermediate_size":9728,"num_hidden_layers":36,"num_attention_heads":32,"num_key_value_heads":8,"head_dim":128,"vocab_size":151936,"tie_word_embeddings":true})",
            2048},
           {"qwen3-8b",
            R"({"hidden_size":4096,"intermediate_size":12288,"num_hidden_layers":36,"num_attention_heads":32,"num_key_value_heads":8,"head_dim":128,"vocab_size":151936,"tie_word_embeddings":false})",
            2048},
           {"qwen3-14b",
            R"({"hidden_size":5120,"intermediate_size":17408,"num_hidden_layers":40,"num_attention_heads":40,"num_key_value_heads":8,"head_dim":128,"vocab_size":151936,"tie_word_embeddings":false})",
            2048},
           {"qwen3-32b",
            R"({"hidden_size":5120,"intermediate_size":25600,"num_hidden_layers":64,"num_attention_heads":64,"num_key_value_heads":8,"head_dim":128,"vocab_size":151936,"tie_word_embeddings":false})",
            2048}},
      .adapters = {.lora = {"q_proj", "v_proj"},
                   .ia3 = {"q_proj", "v_proj", "down_proj"},
                   .feedforward = {"down_proj"},
                   .ln_tuning = {"post_attention_layernorm"}},
      .tensor_plan = TensorPlan{.sequence = true, .plain_head_norms = true},
      .kernels = {.liger_loss = true, .liger_layers = true},
      .programs = {.torchtitan = TorchtitanCode::qwen3,
                   .megatron = MegatronDefaults{.gated = true,
                                                .rope = true,
                                                .rms = true,
                                                .qk_norm = true,
                                                .groups = 32,
                                                .ffn = 22016,
                                                .vocab = 151936,
                                                .head_dim = 128}},
  };
  return kFamily;
}

}  // namespace plimsoll
