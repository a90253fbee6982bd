#include "nn/decoder.h"

#include <nlohmann/json.hpp>

#include "nn/causal_lm.h"
#include "nn/last_token_classifier.h"
#include "nn/masking.h"
#include "nn/transformer.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"
#include "tensor/checkpoint.h"

namespace plimsoll {

void read_decoder_config(const Config& c, DecoderConfig& d) {
  d.vocab_size = c.size({"vocab_size"}, d.vocab_size);
  d.hidden_size = c.size({"hidden_size"}, d.hidden_size);
  d.intermediate_size = c.size({"intermediate_size"}, d.intermediate_size);
  d.num_hidden_layers = c.size({"num_hidden_layers"}, d.num_hidden_layers);
  d.num_attention_heads = c.size({"num_attention_heads"}, d.num_attention_heads);
  if (c.is_null("num_key_value_heads") || !d.num_key_value_heads) d.num_key_value_heads = d.num_attention_heads;
  d.num_key_value_heads = c.size({"num_key_value_heads"}, d.num_key_value_heads);
  c.require_divides("num_key_value_heads", d.num_key_value_heads, "num_attention_heads", d.num_attention_heads);
  if (!d.head_dim && !c.find({"head_dim"})) c.require_divides("num_attention_heads", d.num_attention_heads, "hidden_size", d.hidden_size);
  d.head_dim = c.size({"head_dim"}, d.head_dim ? d.head_dim : d.hidden_size / d.num_attention_heads);
  d.tie_word_embeddings = c.flag({"tie_word_embeddings"}, d.tie_word_embeddings);
  d.attention_dropout = c.number({"attention_dropout"}, d.attention_dropout);
  d.hidden_act = c.text({"hidden_act"}, d.hidden_act);
}

std::vector<bool> sliding_layers(const Config& c, std::vector<bool> fallback) {
  const nlohmann::json* types = c.find({"layer_types"});
  if (!types) return fallback;
  if (!types->is_array() || types->size() != fallback.size())
    throw Error("[" + c.source() + "] layer_types is not a list of num_hidden_layers " + std::to_string(fallback.size()) + " names",
                "give one name for each layer");
  for (size_t i = 0; i < fallback.size(); ++i) {
    const nlohmann::json& type = (*types)[i];
    if (type != "full_attention" && type != "sliding_attention")
      throw Error("[" + c.source() + "] layer_types " + dump(type) + " is not known", "known: full_attention, sliding_attention");
    fallback[i] = type == "sliding_attention";
  }
  return fallback;
}

std::optional<int64_t> sliding_window(const Config& c, std::optional<int64_t> fallback) {
  if (c.is_null("sliding_window")) return std::nullopt;
  return c.find({"sliding_window"}) ? c.size({"sliding_window"}, 0) : fallback;
}

void read_optional_window(const Config& c, DecoderConfig& d) {
  const std::optional<int64_t> window = c.flag({"use_sliding_window"}, false) ? sliding_window(c, 4096) : std::nullopt;
  const int64_t first = c.integer({"max_window_layers"}, 28);
  std::vector<bool> slides(static_cast<size_t>(d.num_hidden_layers));
  for (int64_t i = 0; i < d.num_hidden_layers; ++i) slides[static_cast<size_t>(i)] = window && i >= first;
  d.sliding_layer = sliding_layers(c, slides);
  if (std::find(d.sliding_layer.begin(), d.sliding_layer.end(), true) == d.sliding_layer.end()) return;
  if (!window)
    throw Error("[" + c.source() + "] layer_types has sliding_attention, but there is no sliding_window",
                "set use_sliding_window to true and give sliding_window");
  d.sliding_window = window;
}

GatedMLP::GatedMLP(Module& parent, std::string_view name, int64_t width, int64_t inner, bool bias, std::string act_name)
    : Module(parent, name),
      gate_proj(*this, "gate_proj", width, inner, bias),
      up_proj(*this, "up_proj", width, inner, bias),
      down_proj(*this, "down_proj", inner, width, bias),
      act(std::move(act_name)) {}

Tensor GatedMLP::operator()(const Tensor& x) const {
  Forward here(*this);
  Tensor inner;  // (B, T, F)
  {
    const Tensor gate = activation(act, gate_proj(x));
    const Tensor up = up_proj(x);
    inner = mul(gate, up);
  }
  return down_proj(inner);  // (B, T, C)
}

namespace {

struct Attention : Module {
  Attention(Module& parent, std::string_view name, const DecoderConfig& c)
      : Module(parent, name),
        config(c),
        q_proj(*this, "q_proj", c.hidden_size, c.num_attention_heads * c.head_dim, c.qkv_bias),
        k_proj(*this, "k_proj", c.hidden_size, c.num_key_value_heads * c.head_dim, c.qkv_bias),
        v_proj(*this, "v_proj", c.hidden_size, c.num_key_value_heads * c.head_dim, c.qkv_bias),
        o_proj(*this, "o_proj", c.num_attention_heads * c.head_dim, c.hidden_size, c.o_bias) {
    if (!c.qk_norm) return;
    q_norm = std::make_unique<RMSNorm>(*this, "q_norm", c.head_dim);
    k_norm = std::make_unique<RMSNorm>(*this, "k_norm", c.head_dim);
  }

  Tensor operator()(const Tensor& x, const CosSin& tables, const Tensor& mask, Tensor* weights) const {
    Forward here(*this);
    const Dims heads{x.size(0), x.size(1), -1, config.head_dim};
    Tensor q = split_heads(q_proj, q_norm.get(), x, heads);   // (B, H, T, D)
    Tensor k = split_heads(k_proj, k_norm.get(), x, heads);   // (B, KV, T, D)
    const Tensor v = split_heads(v_proj, nullptr, x, heads);  // (B, KV, T, D)
    std::tie(q, k) = apply_rotary_pos_emb(q, k, tables);
    AttentionCall call;
    call.mask = mask;
    call.dropout = config.attention_dropout;
    call.kv_groups = config.num_attention_heads / config.num_key_value_heads;
    Tensor out = attention(build(), q, k, v, call, weights);     // (B, T, H, D)
    out = contiguous(reshape(out, {x.size(0), x.size(1), -1}));  // (B, T, C)
    out = o_proj(out);
    return out;
  }

  static Tensor split_heads(const Linear& proj, const RMSNorm* norm, const Tensor& x, const Dims& heads) {
    Tensor y = view(proj(x), heads);
    if (norm) y = (*norm)(y);
    return transpose(y, 1, 2);
  }

  const DecoderConfig& config;
  Linear q_proj, k_proj, v_proj, o_proj;
  std::unique_ptr<RMSNorm> q_norm, k_norm;
};

struct DecoderLayer : Module {
  DecoderLayer(Module& parent, std::string_view name, const DecoderConfig& c)
      : Module(parent, name),
        self_attn(*this, "self_attn", c),
        mlp(*this, "mlp", c.hidden_size, c.intermediate_size, c.mlp_bias, c.hidden_act),
        input_layernorm(*this, "input_layernorm", c.hidden_size),
        post_attention_layernorm(*this, "post_attention_layernorm", c.hidden_size) {}

  Tensor operator()(const Tensor& x, const CosSin& tables, const Tensor& mask) const {
    Forward here(*this);
    Tensor weights, residual = x;
    Tensor hidden = input_layernorm(x);  // (B, T, C)
    hidden = self_attn(hidden, tables, mask, &weights);
    hidden = add(residual, hidden);
    residual = hidden;
    hidden = post_attention_layernorm(hidden);
    hidden = mlp(hidden);
    hidden = add(residual, hidden);
    return hidden;
  }

  Attention self_attn;
  GatedMLP mlp;
  RMSNorm input_layernorm, post_attention_layernorm;
};

struct Decoder : Module {
  Decoder(Module& parent, std::string_view name, const DecoderConfig& c)
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
    Tensor full, sliding;
    if (config.full_mask) full = create_causal_mask(build(), args);
    args.sliding_window = config.sliding_window;
    if (config.sliding_window) sliding = create_causal_mask(build(), args);
    Tensor hidden = embeds;
    const CosSin tables = rotary_emb(hidden, positions);
    size_t i = 0;
    for (DecoderLayer& layer : layers) {
      const bool slides = config.sliding_layer.empty() ? !config.full_mask : config.sliding_layer[i];
      const Tensor mask = slides ? sliding : full;
      ++i;
      auto run = [&layer, tables, mask, positions](const Tensor& x) { return layer(x, tables, mask); };
      hidden = build().checkpointing ? checkpoint(tape(), run, hidden) : run(hidden);
    }
    hidden = norm(hidden);
    return hidden;
  }

  const Tensor& embedding() const { return embed_tokens.weight; }

  const DecoderConfig& config;
  Embedding embed_tokens;
  ModuleList<DecoderLayer> layers;
  RMSNorm norm;
  RotaryEmbedding rotary_emb;
};

}  // namespace

std::unique_ptr<Model> make_decoder(Build& build, const DecoderConfig& d) {
  const HeadSettings head{.width = d.hidden_size, .vocab_size = d.vocab_size, .tied = d.tie_word_embeddings};
  return std::make_unique<CausalLM<DecoderConfig, Decoder>>(build, d, head);
}

std::unique_ptr<Model> make_decoder_classifier(Build& build, const Config& config, const DecoderConfig& d) {
  return std::make_unique<LastTokenClassifier<DecoderConfig, Decoder>>(build, config, d, "model", d.hidden_size, std::nullopt);
}

}  // namespace plimsoll
