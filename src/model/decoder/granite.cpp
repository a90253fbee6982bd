// transformers.models.granite: GraniteForCausalLM (Granite, PowerLM). A Llama whose embeddings, branches and logits are scaled.
#include "model/families.h"
#include "nn/decoder_stack.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

// The multipliers always cost a product, also where they are 1.
DecoderConfig granite_settings(const Config& c) {
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
  // Before 4.46 the model upcast its logits itself, under the same name, so that those in half precision were gone (v4.45.2,
  // modeling_granite.py, lines 1101 to 1103).
  Tensor finish_logits(Tensor logits) const override {
    logits = div_scalar(logits);
    return build().transformers < Version{4, 46} ? to(logits, DType::float32) : logits;
  }
};

}  // namespace

std::unique_ptr<Model> make_granite(Build& build, const Config& c) {
  const DecoderConfig d = granite_settings(c);
  return std::make_unique<GraniteForCausalLM>(build, d, lm_head(d));
}

}  // namespace plimsoll
