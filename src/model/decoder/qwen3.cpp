// transformers.models.qwen3: Qwen3ForCausalLM and Qwen3ForSequenceClassification.
#include "model/families.h"
#include "nn/decoder.h"

namespace plimsoll {

namespace {

DecoderConfig qwen3_settings(const Config& c) {
  DecoderConfig d;
  d.vocab_size = 151936;
  d.intermediate_size = 22016;
  d.num_key_value_heads = 32;
  d.head_dim = 128;
  d.qk_norm = true;
  read_decoder_config(c, d);
  d.rope = rope_settings(c, {d.head_dim, 32768});
  d.qkv_bias = d.o_bias = c.flag({"attention_bias"}, false);
  read_optional_window(c, d);
  return d;
}

}  // namespace

std::unique_ptr<Model> make_qwen3(Build& build, const Config& c) { return make_decoder(build, qwen3_settings(c)); }
std::unique_ptr<Model> make_qwen3_classifier(Build& build, const Config& c) { return make_decoder_classifier(build, c, qwen3_settings(c)); }

}  // namespace plimsoll
