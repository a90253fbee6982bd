// transformers.models.gemma2: Gemma2ForCausalLM and Gemma2ForSequenceClassification.
#include "model/family.h"
#include "nn/decoder_stack.h"
#include "nn/gemma_layer.h"
#include "nn/last_token_classifier.h"
#include "nn/lm_text_encoder.h"
#include "nn/text_encoder.h"
#include "ops/pointwise.h"

namespace plimsoll {

namespace {

struct Gemma2Config : DecoderConfig {
  explicit Gemma2Config(const Config& c) {
    vocab_size = 256000;
    hidden_size = 2304;
    intermediate_size = 9216;
    num_hidden_layers = 26;
    num_attention_heads = 8;
    num_key_value_heads = 4;
    head_dim = 256;
    tie_word_embeddings = true;
    read_decoder_config(c, *this);
    rope = rope_settings(c, {head_dim, 8192});
    c.require_divides("num_attention_heads", num_attention_heads, "hidden_size", hidden_size);
    hidden_act = c.text({"hidden_activation"}, "gelu_pytorch_tanh");
    qkv_bias = o_bias = c.flag({"attention_bias"}, false);
    softcap = has_cap(c, "attn_logit_softcapping");
    final_logit_softcapping = has_cap(c, "final_logit_softcapping");
    causal = !c.flag({"use_bidirectional_attention"}, false);
    std::vector<bool> slides(static_cast<size_t>(num_hidden_layers));
    for (size_t i = 0; i < slides.size(); ++i) slides[i] = i % 2 == 0;
    sliding_layer = sliding_layers(c, slides);
    sliding_window = plimsoll::sliding_window(c, 4096);
    if (!sliding_window) throw Error("[gemma2] sliding_window null: its mask is always made", "give sliding_window a number of tokens");
  }
  // On by default; null switches a cap off.
  static bool has_cap(const Config& c, const char* key) {
    c.number({key}, 0.0);
    return !c.is_null(key);
  }
  bool final_logit_softcapping = true;
};

using Gemma2DecoderLayer = FourNormLayer<Gemma2Config, DecoderAttention>;

using Gemma2Model = DecoderStack<Gemma2Config, Gemma2DecoderLayer, GemmaRMSNorm, GemmaTextScaledWordEmbedding>;

struct Gemma2ForCausalLM : CausalLM<Gemma2Config, Gemma2Model> {
  using CausalLM::CausalLM;
  Tensor finish_logits(Tensor logits) const override { return settings.final_logit_softcapping ? soft_cap(std::move(logits)) : logits; }
  bool caps_logits() const override { return settings.final_logit_softcapping; }
};

std::unique_ptr<Model> make_gemma2(Build& build, const Config& c) {
  const Gemma2Config config(c);
  return std::make_unique<Gemma2ForCausalLM>(build, config, lm_head(config));
}

std::unique_ptr<Model> make_gemma2_classifier(Build& build, const Config& c) {
  const Gemma2Config config(c);
  return std::make_unique<LastTokenClassifier<Gemma2Config, Gemma2Model>>(build, c, config, "model", config.hidden_size, 0);
}

std::unique_ptr<TextEncoder> make_gemma2_text_model(Module& parent, std::string_view name, const Config& c) {
  return std::make_unique<LmTextEncoder<Gemma2Config, Gemma2Model>>(parent, name, Gemma2Config(c), false);
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
