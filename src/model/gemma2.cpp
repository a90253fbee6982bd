// transformers.models.gemma2: Gemma2ForCausalLM and Gemma2ForSequenceClassification.
#include "model/families.h"
#include "nn/causal_lm.h"
#include "nn/decoder.h"
#include "nn/last_token_classifier.h"
#include "nn/masking.h"
#include "nn/transformer.h"
#include "ops/pointwise.h"
#include "ops/reduce.h"
#include "ops/reshape.h"
#include "tensor/checkpoint.h"

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
    attn_logit_softcapping = softcap(c, "attn_logit_softcapping", 50.0);
    final_logit_softcapping = softcap(c, "final_logit_softcapping", 30.0);
    causal = !c.flag({"use_bidirectional_attention"}, false);
    std::vector<bool> slides(static_cast<size_t>(num_hidden_layers));
    for (size_t i = 0; i < slides.size(); ++i) slides[i] = i % 2 == 0;
    sliding_layer = sliding_layers(c, slides);
    sliding_window = plimsoll::sliding_window(c, 4096);
    if (!sliding_window) throw Error("[gemma2] sliding_window null: its mask is always made", "give sliding_window a number of tokens");
  }
  // null switches a cap off
  static std::optional<double> softcap(const Config& c, const char* key, double fallback) {
    if (c.is_null(key)) return std::nullopt;
    return c.number({key}, fallback);
  }
  std::optional<double> attn_logit_softcapping, final_logit_softcapping;
  bool causal = true;
};

// Normalises and scales by 1 + weight in fp32, then returns to the type of x.
struct Gemma2RMSNorm : Module {
  Gemma2RMSNorm(Module& parent, std::string_view name, int64_t width) : Module(parent, name) { weight = parameter("weight", {width}); }

  Tensor operator()(const Tensor& x) const {
    Forward here(*this);
    Tensor output = normalise(to(x, DType::float32));
    {
      const Tensor scale = one_plus_weight();
      output = mul(output, scale);
    }
    return to(output, x.dtype());
  }

  static Tensor normalise(const Tensor& x) {
    Tensor scale;  // (B, T, 1)
    {
      const Tensor variance = mean(pow(x, 2), {-1}, true);
      scale = add_scalar(variance);
    }
    scale = rsqrt(scale);
    return mul(x, scale);
  }

  Tensor one_plus_weight() const { return add_scalar(to(weight, DType::float32)); }

  Tensor weight;
};

struct Gemma2Attention : Module {
  Gemma2Attention(Module& parent, std::string_view name, const Gemma2Config& c)
      : Module(parent, name),
        config(c),
        q_proj(*this, "q_proj", c.hidden_size, c.num_attention_heads * c.head_dim, c.qkv_bias),
        k_proj(*this, "k_proj", c.hidden_size, c.num_key_value_heads * c.head_dim, c.qkv_bias),
        v_proj(*this, "v_proj", c.hidden_size, c.num_key_value_heads * c.head_dim, c.qkv_bias),
        o_proj(*this, "o_proj", c.num_attention_heads * c.head_dim, c.hidden_size, c.o_bias) {}

  Tensor operator()(const Tensor& x, const CosSin& tables, const Tensor& mask, Tensor* weights) const {
    Forward here(*this);
    const Dims heads{x.size(0), x.size(1), -1, config.head_dim};
    Tensor q = transpose(view(q_proj(x), heads), 1, 2);        // (B, H, T, D)
    Tensor k = transpose(view(k_proj(x), heads), 1, 2);        // (B, KV, T, D)
    const Tensor v = transpose(view(v_proj(x), heads), 1, 2);  // (B, KV, T, D)
    std::tie(q, k) = apply_rotary_pos_emb(q, k, tables);
    AttentionCall call;
    call.mask = mask;
    call.dropout = config.attention_dropout;
    call.causal = config.causal;
    call.kv_groups = config.num_attention_heads / config.num_key_value_heads;
    call.softcap = config.attn_logit_softcapping.has_value();
    Tensor out = attention(build(), q, k, v, call, weights);     // (B, T, H, D)
    out = contiguous(reshape(out, {x.size(0), x.size(1), -1}));  // (B, T, H D)
    out = o_proj(out);                                           // (B, T, C)
    return out;
  }

  const Gemma2Config& config;
  Linear q_proj, k_proj, v_proj, o_proj;
};

struct Gemma2DecoderLayer : Module {
  Gemma2DecoderLayer(Module& parent, std::string_view name, const Gemma2Config& c)
      : Module(parent, name),
        self_attn(*this, "self_attn", c),
        mlp(*this, "mlp", c.hidden_size, c.intermediate_size, false, c.hidden_act),
        input_layernorm(*this, "input_layernorm", c.hidden_size),
        post_attention_layernorm(*this, "post_attention_layernorm", c.hidden_size),
        pre_feedforward_layernorm(*this, "pre_feedforward_layernorm", c.hidden_size),
        post_feedforward_layernorm(*this, "post_feedforward_layernorm", c.hidden_size) {}

  Tensor operator()(const Tensor& x, const CosSin& tables, const Tensor& mask) const {
    Forward here(*this);
    Tensor weights, residual = x;
    Tensor hidden = input_layernorm(x);  // (B, T, C)
    hidden = self_attn(hidden, tables, mask, &weights);
    hidden = post_attention_layernorm(hidden);
    hidden = add(residual, hidden);
    residual = hidden;
    hidden = pre_feedforward_layernorm(hidden);
    hidden = mlp(hidden);
    hidden = post_feedforward_layernorm(hidden);
    hidden = add(residual, hidden);
    return hidden;
  }

  Gemma2Attention self_attn;
  GatedMLP mlp;
  Gemma2RMSNorm input_layernorm, post_attention_layernorm, pre_feedforward_layernorm, post_feedforward_layernorm;
};

struct Gemma2TextScaledWordEmbedding : Embedding {
  Gemma2TextScaledWordEmbedding(Module& parent, std::string_view name, int64_t rows, int64_t width) : Embedding(parent, name, rows, width) {
    embed_scale = buffer("embed_scale", {});
  }

  Tensor scaled(const Tensor& embeds, DType dtype) const override { return mul(embeds, to(embed_scale, dtype)); }

  Tensor embed_scale;
};

struct Gemma2Model : Module {
  Gemma2Model(Module& parent, std::string_view name, const Gemma2Config& c)
      : Module(parent, name),
        config(c),
        embed_tokens(*this, "embed_tokens", c.vocab_size, c.hidden_size),
        layers(*this, "layers"),
        norm(add_layers(), "norm", c.hidden_size),
        rotary_emb(*this, "rotary_emb", c.rope) {}

  Module& add_layers() {
    for (int64_t i = 0; i < config.num_hidden_layers; ++i) layers.add(config);
    return *this;
  }

  Tensor operator()(const Tensor& input_ids) {
    Forward here(*this);
    const Tensor embeds = embed_tokens(input_ids);  // (B, T, C)
    const Tensor positions = position_ids(tape(), embeds.size(1));
    MaskArgs args{embeds.size(0), embeds.size(1), embeds.size(1), embeds.dtype(), positions, {}};
    const Tensor full = create_causal_mask(build(), args);
    args.sliding_window = config.sliding_window;
    const Tensor sliding = create_causal_mask(build(), args);
    Tensor hidden = embeds;
    const CosSin tables = rotary_emb(hidden, positions);
    for (size_t i = 0; i < layers.size(); ++i) {
      auto run = [&layer = layers[i], tables, mask = config.sliding_layer[i] ? sliding : full, positions](const Tensor& x) {
        return layer(x, tables, mask);
      };
      hidden = build().checkpointing ? checkpoint(tape(), run, hidden) : run(hidden);
    }
    hidden = norm(hidden);
    return hidden;
  }

  const Tensor& embedding() const { return embed_tokens.weight; }

  const Gemma2Config& config;
  Gemma2TextScaledWordEmbedding embed_tokens;
  ModuleList<Gemma2DecoderLayer> layers;
  Gemma2RMSNorm norm;
  RotaryEmbedding rotary_emb;
};

struct Gemma2ForCausalLM : CausalLM<Gemma2Config, Gemma2Model> {
  using CausalLM::CausalLM;
  Tensor finish_logits(Tensor logits) const override {
    if (!settings.final_logit_softcapping) return logits;
    logits = div_scalar(logits);
    logits = tanh(logits);
    logits = mul_scalar(logits);
    return logits;
  }
};

}  // namespace

std::unique_ptr<Model> make_gemma2(Build& build, const Config& c) {
  const Gemma2Config config(c);
  const HeadSettings head{.width = config.hidden_size, .vocab_size = config.vocab_size, .tied = config.tie_word_embeddings};
  return std::make_unique<Gemma2ForCausalLM>(build, config, head);
}

std::unique_ptr<Model> make_gemma2_classifier(Build& build, const Config& c) {
  const Gemma2Config config(c);
  return std::make_unique<LastTokenClassifier<Gemma2Config, Gemma2Model>>(build, c, config, "model", config.hidden_size, 0);
}

}  // namespace plimsoll
