// transformers.models.llama: LlamaForCausalLM.
#include "model/families.h"
#include "nn/decoder.h"

namespace plimsoll {

std::unique_ptr<Model> make_llama(Build& build, const Config& c) {
  DecoderConfig d;
  d.vocab_size = c.size({"vocab_size"}, 32000);
  d.hidden_size = c.size({"hidden_size"}, 4096);
  d.intermediate_size = c.size({"intermediate_size"}, 11008);
  d.num_hidden_layers = c.size({"num_hidden_layers"}, 32);
  d.num_attention_heads = c.size({"num_attention_heads"}, 32);
  d.num_key_value_heads = c.size({"num_key_value_heads"}, d.num_attention_heads);
  if (!c.find({"head_dim"})) c.require_divides("num_attention_heads", d.num_attention_heads, "hidden_size", d.hidden_size);
  c.require_divides("num_key_value_heads", d.num_key_value_heads, "num_attention_heads", d.num_attention_heads);
  d.head_dim = c.size({"head_dim"}, d.hidden_size / d.num_attention_heads);
  d.qkv_bias = d.o_bias = c.flag({"attention_bias"}, false);
  d.mlp_bias = c.flag({"mlp_bias"}, false);
  d.tie_word_embeddings = c.flag({"tie_word_embeddings"}, false);
  d.attention_dropout = c.number({"attention_dropout"}, 0.0);
  d.hidden_act = c.text({"hidden_act"}, "silu");
  return make_decoder(build, d);
}

}  // namespace plimsoll
