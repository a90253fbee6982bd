// transformers.models.llama: LlamaForCausalLM and LlamaForSequenceClassification.
#include "model/decoder/llama.h"

#include "model/family.h"
#include "nn/text_encoder.h"

namespace plimsoll {

DecoderConfig llama_config(const Config& c) {
  DecoderConfig d;
  read_decoder_config(c, d);
  d.rope = rope_settings(c, {d.head_dim, 2048});
  c.require_divides("num_attention_heads", d.num_attention_heads, "hidden_size", d.hidden_size);
  d.qkv_bias = d.o_bias = c.flag({"attention_bias"}, false);
  d.mlp_bias = c.flag({"mlp_bias"}, false);
  return d;
}

namespace {

std::unique_ptr<Model> make_llama(Build& build, const Config& c) { return make_decoder(build, llama_config(c)); }
std::unique_ptr<Model> make_llama_classifier(Build& build, const Config& c) { return make_decoder_classifier(build, c, llama_config(c)); }

std::unique_ptr<TextEncoder> make_llama_text_model(Module& parent, std::string_view name, const Config& c) {
  return make_decoder_text_encoder(parent, name, llama_config(c));
}

}  // namespace

const Family& llama_family() {
  static const Family kFamily{
      .name = "llama",
      .models = {{"llama", {"LlamaForCausalLM"}, InputKind::lm, 2048, make_llama, make_llama_text_model},
                 {"llama-classifier", {"LlamaForSequenceClassification"}, InputKind::cls, 2048, make_llama_classifier}},
      .presets =
          {{"tinyllama-1.1b",
            R"({"hidden_size":2048,"intermediate_size":5632,"num_hidden_layers":22,"num_attention_heads":32,"num_key_value_heads":4,"vocab_size":32000})",
            2048},
           {"llama-7b",
            R"({"hidden_size":4096,"intermediate_size":11008,"num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":32,"vocab_size":32000})",
            2048},
           {"llama-13b",
            R"({"hidden_size":5120,"intermediate_size":13824,"num_hidden_layers":40,"num_attention_heads":40,"num_key_value_heads":40,"vocab_size":32000})",
            2048},
           {"llama-2-7b",
            R"({"hidden_size":4096,"intermediate_size":11008,"num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":32,"vocab_size":32000})",
            4096},
           {"llama-2-13b",
            R"({"hidden_size":5120,"intermediate_size":13824,"num_hidden_layers":40,"num_attention_heads":40,"num_key_value_heads":40,"vocab_size":32000})",
            4096},
           {"llama-2-70b",
            R"({"hidden_size":8192,"intermediate_size":28672,"num_hidden_layers":80,"num_attention_heads":64,"num_key_value_heads":8,"vocab_size":32000})",
            4096},
           {"llama-3-8b",
            R"({"hidden_size":4096,"intermediate_size":14336,"num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":8,"vocab_size":128256})",
            8192},
           {"llama-3-70b",
            R"({"hidden_size":8192,"intermediate_size":28672,"num_hidden_layers":80,"num_attention_heads":64,"num_key_value_heads":8,"vocab_size":128256})",
            8192},
           {"llama-3.1-8b",
            R"({"hidden_size":4096,"intermediate_size":14336,"num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":8,"vocab_size":128256})",
            8192},
           {"llama-3.1-70b",
            R"({"hidden_size":8192,"intermediate_size":28672,"num_hidden_layers":80,"num_attention_heads":64,"num_key_value_heads":8,"vocab_size":128256})",
            8192},
           {"llama-3.1-405b",
            R"({"hidden_size":16384,"intermediate_size":53248,"num_hidden_layers":126,"num_attention_heads":128,"num_key_value_heads":8,"vocab_size":128256})",
            8192},
           {"llama-3.2-1b",
            R"({"hidden_size":2048,"intermediate_size":8192,"num_hidden_layers":16,"num_attention_heads":32,"num_key_value_heads":8,"vocab_size":128256,"head_dim":64,"tie_word_embeddings":true})",
            8192},
           {"llama-3.2-3b",
            R"({"hidden_size":3072,"intermediate_size":8192,"num_hidden_layers":28,"num_attention_heads":24,"num_key_value_heads":8,"vocab_size":128256,"head_dim":128,"tie_word_embeddings":true})",
            8192},
           {"llama-3.3-70b",
            R"({"hidden_size":8192,"intermediate_size":28672,"num_hidden_layers":80,"num_attention_heads":64,"num_key_value_heads":8,"vocab_size":128256})",
            8192},
           {"smollm2-135m",
            R"({"hidden_size":576,"intermediate_size":1536,"num_hidden_layers":30,"num_attention_heads":9,"num_key_value_heads":3,"vocab_size":49152,"tie_word_embeddings":true})",
            2048},
           {"smollm2-360m",
            R"({"hidden_size":960,"intermediate_size":2560,"num_hidden_layers":32,"num_attention_heads":15,"num_key_value_heads":5,"vocab_size":49152,"tie_word_embeddings":true})",
            2048},
           {"smollm2-1.7b",
            R"({"hidden_size":2048,"intermediate_size":8192,"num_hidden_layers":24,"num_attention_heads":32,"num_key_value_heads":32,"vocab_size":49152,"tie_word_embeddings":true})",
            2048}},
      .adapters = {.lora = {"q_proj", "v_proj"},
                   .ia3 = {"k_proj", "v_proj", "down_proj"},
                   .feedforward = {"down_proj"},
                   .ln_tuning = {"input_layernorm", "post_attention_layernorm", "norm"}},
      .tensor_plan = TensorPlan{.sequence = true},
      .kernels = {.liger_loss = true, .liger_layers = true, .cut_cross_entropy = true},
      .programs = {.torchtitan = TorchtitanCode::llama, .megatron = MegatronDefaults{.gated = true, .rope = true, .rms = true}},
  };
  return kFamily;
}

}  // namespace plimsoll
