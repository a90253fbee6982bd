// transformers.models.granite: GraniteForCausalLM (Granite, PowerLM). A Llama whose embeddings, branches and logits are scaled.
#include "model/families.h"
#include "nn/decoder_stack.h"
#include "ops/pointwise.h"

namespace plimsoll {

namespace {

// The multipliers always cost a product, also where they are 1.
DecoderConfig settings(const Config& c) {
  DecoderConfig d;
  read_decoder_config(c, d);
  reject_captured_outputs(c);
  d.rope = rope_settings(c, {d.head_dim, 2048});
  d.qkv_bias = d.o_bias = c.flag({"attention_bias"}, false);
  d.mlp_bias = c.flag({"mlp_bias"}, false);
  d.scales_branches = true;
  return d;
}

struct GraniteModel : DecoderStack<DecoderConfig, PreNormLayer<RMSNorm>, RMSNorm> {
  using DecoderStack::DecoderStack;
  Tensor embed(const Tensor& input_ids) const override { return mul_scalar(embed_tokens(input_ids)); }
};

struct GraniteForCausalLM : CausalLM<DecoderConfig, GraniteModel> {
  using CausalLM::CausalLM;
  Tensor finish_logits(Tensor logits) const override { return div_scalar(logits); }
};

}  // namespace

std::unique_ptr<Model> make_granite(Build& build, const Config& c) {
  const DecoderConfig d = settings(c);
  return std::make_unique<GraniteForCausalLM>(build, d, lm_head(d));
}

}  // namespace plimsoll
