// transformers.models.phi: PhiForCausalLM and PhiForSequenceClassification (Phi-1, Phi-1.5, Phi-2). Attention and feed-forward
// read the same norm and are added together.
#include "model/family.h"
#include "nn/decoder_stack.h"
#include "nn/feed_forward.h"
#include "nn/last_token_classifier.h"
#include "ops/pointwise.h"

namespace plimsoll {

namespace {

struct PhiConfig : DecoderConfig {
  explicit PhiConfig(const Config& c) {
    names.norm = "final_layernorm";
    vocab_size = 51200;
    hidden_size = 2048;
    intermediate_size = 8192;
    num_hidden_layers = 24;
    hidden_act = "gelu_new";
    norm = norm_of<LayerNorm>;
    qkv_bias = o_bias = true;
    out_proj = "dense";
    rotary = rotate_part_in_attention;
    read_decoder_config(c, *this);
    reject_captured_outputs(c);
    rope = rope_settings(c, {head_dim, 2048, 0.5});
    resid_pdrop = c.number({"resid_pdrop"}, 0.0);
    embd_pdrop = c.number({"embd_pdrop"}, 0.0);
    if (c.flag({"qk_layernorm"}, false)) qk_norm = {norm_of_a_head<LayerNorm>, "q_layernorm", "k_layernorm", true};
  }
  double resid_pdrop = 0.0, embd_pdrop = 0.0;
};

struct PhiDecoderLayer : Module {
  PhiDecoderLayer(Module& parent, std::string_view name, const PhiConfig& c) : Module(parent, name), config(c) {}

  Tensor operator()(const Tensor& x, const CosSin& tables, const Tensor& mask) const {
    Forward here(*this);
    Tensor weights;
    const Tensor residual = x;
    Tensor hidden = input_layernorm(x);  // (B, T, C)
    Tensor attn_outputs = run_attention(self_attn, hidden, &weights, tables, mask);
    attn_outputs = resid_dropout(attn_outputs);
    const Tensor feed_forward = resid_dropout(run_part(mlp, hidden));
    hidden = add(add(attn_outputs, feed_forward), residual);
    return hidden;
  }

  const PhiConfig& config;
  DecoderAttention self_attn{*this, "self_attn", config};
  FeedForward mlp{*this, "mlp", {"fc1", "fc2", config.hidden_size, config.intermediate_size, config.hidden_act}};
  LayerNorm input_layernorm{*this, "input_layernorm", config.hidden_size};
  Dropout resid_dropout{*this, "resid_dropout", config.resid_pdrop};
};

struct PhiModel : DecoderStack<PhiConfig, PhiDecoderLayer> {
  PhiModel(Module& parent, std::string_view name, const PhiConfig& c)
      : DecoderStack(parent, name, c), embed_dropout(*this, "embed_dropout", c.embd_pdrop) {}
  Tensor enter(Tensor& embeds) const override {
    embeds = embed_dropout(embeds);
    return embeds;
  }
  Dropout embed_dropout;
};

std::unique_ptr<Model> make_phi(Build& build, const Config& c) {
  const PhiConfig config(c);
  HeadSettings head = lm_head(config);
  head.bias = true;
  return std::make_unique<CausalLM<PhiConfig, PhiModel>>(build, config, head);
}

std::unique_ptr<Model> make_phi_classifier(Build& build, const Config& c) {
  const PhiConfig config(c);
  return std::make_unique<LastTokenClassifier<PhiConfig, PhiModel>>(build, c, config, "model", config.hidden_size, std::nullopt);
}

}  // namespace

const Family& phi_family() {
  static const Family kFamily{
      .name = "phi",
      .models = {{"phi", {"PhiForCausalLM"}, InputKind::lm, 2048, make_phi},
                 {"phi-classifier", {"PhiForSequenceClassification"}, InputKind::cls, 2048, make_phi_classifier}},
      .presets =
          {{"phi-1", R"({})", 2048},
           {"phi-1.5", R"({})", 2048},
           {"phi-2",
            R"({"hidden_size":2560,"intermediate_size":10240,"num_hidden_layers":32,"num_attention_heads":32,"partial_rotary_factor":0.4})",
            2048}},
  };
  return kFamily;
}

}  // namespace plimsoll
