// transformers.models.mistral: MistralForCausalLM and MistralForSequenceClassification.
#include "model/families.h"
#include "nn/decoder.h"

namespace plimsoll {

namespace {

DecoderConfig mistral_settings(const Config& c) {
  DecoderConfig d;
  d.intermediate_size = 14336;
  d.num_key_value_heads = 8;
  read_decoder_config(c, d);
  d.rope = rope_settings(c, {d.head_dim, 131072});
  d.sliding_window = sliding_window(c, 4096);
  d.full_mask = !d.sliding_window;  // one mask for all layers
  return d;
}

}  // namespace

std::unique_ptr<Model> make_mistral(Build& build, const Config& c) { return make_decoder(build, mistral_settings(c)); }
std::unique_ptr<Model> make_mistral_classifier(Build& build, const Config& c) {
  return make_decoder_classifier(build, c, mistral_settings(c));
}

}  // namespace plimsoll
