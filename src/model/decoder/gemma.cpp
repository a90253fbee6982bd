// transformers.models.gemma: GemmaForCausalLM and GemmaForSequenceClassification.
#include "nn/gemma.h"
#include "model/family.h"
#include "nn/decoder.h"
#include "nn/transformer.h"

namespace plimsoll {

namespace {

DecoderConfig gemma_settings(const Config& c) {
  DecoderConfig d;
  d.vocab_size = 256000;
  d.hidden_size = 3072;
  d.intermediate_size = 24576;
  d.num_hidden_layers = 28;
  d.num_attention_heads = d.num_key_value_heads = 16;
  d.head_dim = 256;
  d.hidden_act = "gelu_pytorch_tanh";
  d.tie_word_embeddings = true;
  d.norm = norm_of<GemmaRMSNorm>;
  d.embedding = embedding_of<GemmaTextScaledWordEmbedding>;
  read_decoder_config(c, d);
  reject_captured_outputs(c);
  d.rope = rope_settings(c, {d.head_dim, 8192});
  d.qkv_bias = d.o_bias = c.flag({"attention_bias"}, false);
  d.causal = !c.flag({"use_bidirectional_attention"}, false);
  return d;
}

std::unique_ptr<Model> make_gemma(Build& build, const Config& c) { return make_decoder(build, gemma_settings(c)); }
std::unique_ptr<Model> make_gemma_classifier(Build& build, const Config& c) {
  return make_decoder_classifier(build, c, gemma_settings(c), 0);
}

}  // namespace

const Family& gemma_family() {
  static const Family kFamily{
      .name = "gemma",
      .models = {{"gemma", {"GemmaForCausalLM"}, InputKind::lm, 2048, make_gemma},
                 {"gemma-classifier", {"GemmaForSequenceClassification"}, InputKind::cls, 2048, make_gemma_classifier}},
      .presets =
          {{"gemma-2b",
            R"({"hidden_size":2048,"intermediate_size":16384,"num_hidden_layers":18,"num_attention_heads":8,"num_key_value_heads":1})",
            2048},
           {"gemma-7b", R"({})", 2048}},
      .tensor_plan = TensorPlan{},
      .kernels = {.liger_loss = true},
  };
  return kFamily;
}

}  // namespace plimsoll
