// transformers.models.mistral: MistralForCausalLM and MistralForSequenceClassification.
#include "model/family.h"
#include "nn/decoder.h"

namespace plimsoll {

namespace {

DecoderConfig mistral_settings(const Config& c) {
  DecoderConfig d;
  d.intermediate_size = 14336;
  d.num_key_value_heads = 8;
  read_decoder_config(c, d);
  d.rope = rope_settings(c, {d.head_dim, 131072});
  read_window_of_all_layers(c, d, 4096);
  return d;
}

std::unique_ptr<Model> make_mistral(Build& build, const Config& c) { return make_decoder(build, mistral_settings(c)); }
std::unique_ptr<Model> make_mistral_classifier(Build& build, const Config& c) {
  return make_decoder_classifier(build, c, mistral_settings(c));
}

}  // namespace

const Family& mistral_family() {
  static const Family kFamily{
      .name = "mistral",
      .models = {{"mistral", {"MistralForCausalLM"}, InputKind::lm, 2048, make_mistral},
                 {"mistral-classifier", {"MistralForSequenceClassification"}, InputKind::cls, 2048, make_mistral_classifier}},
      .presets =
          {{"mistral-7b",
            R"({"hidden_size":4096,"intermediate_size":14336,"num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":8,"vocab_size":32000,"sliding_window":null})",
            4096},
           {"mistral-7b-v0.1",
            R"({"hidden_size":4096,"intermediate_size":14336,"num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":8,"vocab_size":32000,"sliding_window":4096})",
            4096},
           {"mistral-7b-v0.3",
            R"({"hidden_size":4096,"intermediate_size":14336,"num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":8,"vocab_size":32768,"sliding_window":null})",
            4096},
           {"mistral-nemo-12b",
            R"({"hidden_size":5120,"intermediate_size":14336,"num_hidden_layers":40,"num_attention_heads":32,"num_key_value_heads":8,"head_dim":128,"vocab_size":131072,"sliding_window":null})",
            4096}},
      .adapters = {.lora = {"q_proj", "v_proj"},
                   .ia3 = {"k_proj", "v_proj", "down_proj"},
                   .feedforward = {"down_proj"},
                   .ln_tuning = {"input_layernorm", "post_attention_layernorm", "norm"}},
      .tensor_plan = TensorPlan{.sequence = true},
      .kernels = {.liger_loss = true, .liger_layers = true, .cut_cross_entropy = true},
      .programs = {.megatron = MegatronDefaults{.gated = true, .rope = true, .rms = true, .groups = 8, .ffn = 14336}},
  };
  return kFamily;
}

}  // namespace plimsoll
