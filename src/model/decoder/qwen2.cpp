// transformers.models.qwen2: Qwen2ForCausalLM and Qwen2ForSequenceClassification.
#include "model/families.h"
#include "model/text_encoders.h"
#include "nn/decoder.h"

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

}  // namespace

std::unique_ptr<Model> make_qwen2(Build& build, const Config& c) { return make_decoder(build, qwen2_settings(c)); }
std::unique_ptr<Model> make_qwen2_classifier(Build& build, const Config& c) { return make_decoder_classifier(build, c, qwen2_settings(c)); }

std::unique_ptr<TextEncoder> make_qwen2_text_model(Module& parent, std::string_view name, const Config& c) {
  return make_decoder_text_encoder(parent, name, qwen2_settings(c));
}

}  // namespace plimsoll
