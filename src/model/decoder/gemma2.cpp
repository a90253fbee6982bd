// transformers.models.gemma2: Gemma2ForCausalLM and Gemma2ForSequenceClassification.
#include "model/family.h"
#include "nn/decoder.h"
#include "nn/gemma.h"
#include "nn/text_encoder.h"
#include "nn/transformer.h"

namespace plimsoll {

namespace {

// On by default; null switches a cap off.
bool has_cap(const Config& c, const char* key) {
  c.number({key}, 0.0);
  return !c.is_null(key);
}

DecoderConfig gemma2_settings(const Config& c) {
  DecoderConfig d;
  d.vocab_size = 256000;
  d.hidden_size = 2304;
  d.intermediate_size = 9216;
  d.num_hidden_layers = 26;
  d.num_attention_heads = 8;
  d.num_key_value_heads = 4;
  d.head_dim = 256;
  d.tie_word_embeddings = true;
  d.norm = norm_of<GemmaRMSNorm>;
  d.norm_names = kNormsAround;
  d.embedding = embedding_of<GemmaTextScaledWordEmbedding>;
  read_decoder_config(c, d);
  d.rope = rope_settings(c, {d.head_dim, 8192});
  c.require_divides("num_attention_heads", d.num_attention_heads, "hidden_size", d.hidden_size);
  d.hidden_act = c.text({"hidden_activation"}, "gelu_pytorch_tanh");
  d.qkv_bias = d.o_bias = c.flag({"attention_bias"}, false);
  d.softcap = has_cap(c, "attn_logit_softcapping");
  d.caps_logits = has_cap(c, "final_logit_softcapping");
  d.causal = !c.flag({"use_bidirectional_attention"}, false);
  d.sliding_layer = sliding_layers(c, all_but_each(2, d.num_hidden_layers));
  d.sliding_window = sliding_window(c, 4096);
  if (!d.sliding_window) throw Error("[gemma2] sliding_window null: its mask is always made", "give sliding_window a number of tokens");
  return d;
}

std::unique_ptr<Model> make_gemma2(Build& build, const Config& c) { return make_decoder(build, gemma2_settings(c)); }
std::unique_ptr<Model> make_gemma2_classifier(Build& build, const Config& c) {
  return make_decoder_classifier(build, c, gemma2_settings(c), 0);
}

std::unique_ptr<TextEncoder> make_gemma2_text_model(Module& parent, std::string_view name, const Config& c) {
  return make_decoder_text_encoder(parent, name, gemma2_settings(c), false);
}

}  // namespace

const Family& gemma2_family() {
  static const Family kFamily{
      .name = "gemma2",
      .models = {{"gemma2", {"Gemma2ForCausalLM"}, InputKind::lm, 2048, make_gemma2, make_gemma2_text_model},
                 {"gemma2-classifier", {"Gemma2ForSequenceClassification"}, InputKind::cls, 2048, make_gemma2_classifier}},
      .presets =
          {{"gemma-2-2b",
            R"({"hidden_size":2304,"intermediate_size":9216,"num_hidden_layers":26,"num_attention_heads":8,"num_key_value_heads":4,"head_dim":256,"vocab_size":256000})",
            2048},
           {"gemma-2-9b",
            R"({"hidden_size":3584,"intermediate_size":14336,"num_hidden_layers":42,"num_attention_heads":16,"num_key_value_heads":8,"head_dim":256,"vocab_size":256000})",
            2048},
           {"gemma-2-27b",
            R"({"hidden_size":4608,"intermediate_size":36864,"num_hidden_layers":46,"num_attention_heads":32,"num_key_value_heads":16,"head_dim":128,"vocab_size":256000})",
            2048}},
      .adapters = {.lora = {"q_proj", "v_proj"},
                   .ia3 = {"q_proj", "v_proj", "down_proj"},
                   .feedforward = {"down_proj"},
                   .ln_tuning = {"input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm",
                                 "norm"}},
      .tensor_plan = TensorPlan{},
      .kernels = {.liger_loss = true, .liger_layers = true, .cut_cross_entropy = true},
  };
  return kFamily;
}

}  // namespace plimsoll
