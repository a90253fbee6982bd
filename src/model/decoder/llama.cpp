// transformers.models.llama: LlamaForCausalLM and LlamaForSequenceClassification.
#include "model/decoder/llama.h"

#include "model/families.h"
#include "model/text_encoders.h"

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

std::unique_ptr<Model> make_llama(Build& build, const Config& c) { return make_decoder(build, llama_config(c)); }
std::unique_ptr<Model> make_llama_classifier(Build& build, const Config& c) { return make_decoder_classifier(build, c, llama_config(c)); }

std::unique_ptr<TextEncoder> make_llama_text_model(Module& parent, std::string_view name, const Config& c) {
  return make_decoder_text_encoder(parent, name, llama_config(c));
}

}  // namespace plimsoll
