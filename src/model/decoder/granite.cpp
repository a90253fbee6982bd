// transformers.models.granite: GraniteForCausalLM (Granite, PowerLM). A Llama whose embeddings, branches and logits are scaled.
#include "model/family.h"
#include "nn/decoder.h"
#include "nn/transformer.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

// Before 4.46 the model upcast its logits itself, under the same name, so that those in half precision were gone (v4.45.2,
// modeling_granite.py, lines 1101 to 1103).
Tensor granite_logits(const Build& build, Tensor logits) {
  logits = div_scalar(logits);
  return build.transformers < Version{4, 46} ? to(logits, DType::float32) : logits;
}

// The multipliers always cost a product, also where they are 1.
DecoderConfig granite_settings(const Config& c) {
  DecoderConfig d;
  d.scales_embeddings = d.scales_branches = true;
  d.finish_logits = granite_logits;
  read_decoder_config(c, d);
  reject_captured_outputs(c);
  d.rope = rope_settings(c, {d.head_dim, 2048});
  d.qkv_bias = d.o_bias = c.flag({"attention_bias"}, false);
  d.mlp_bias = c.flag({"mlp_bias"}, false);
  return d;
}

std::unique_ptr<Model> make_granite(Build& build, const Config& c) { return make_decoder(build, granite_settings(c)); }

}  // namespace

const Family& granite_family() {
  static const Family kFamily{
      .name = "granite",
      .models = {{"granite", {"GraniteForCausalLM"}, InputKind::lm, 2048, make_granite}},
      .presets =
          {{"granite-3.1-2b",
            R"({"hidden_size":2048,"intermediate_size":8192,"num_hidden_layers":40,"num_attention_heads":32,"num_key_value_heads":8,"vocab_size":49152,"tie_word_embeddings":true})",
            4096},
           {"granite-3.1-8b",
            R"({"hidden_size":4096,"intermediate_size":12800,"num_hidden_layers":40,"num_attention_heads":32,"num_key_value_heads":8,"vocab_size":49152,"tie_word_embeddings":true})",
            4096},
           {"powerlm-3b",
            R"({"hidden_size":2304,"intermediate_size":9216,"num_hidden_layers":40,"num_attention_heads":36,"num_key_value_heads":36,"vocab_size":49152,"tie_word_embeddings":true})",
            4096}},
      .tensor_plan = TensorPlan{.sequence = true},
      .kernels = {.liger_loss = true},
  };
  return kFamily;
}

}  // namespace plimsoll
