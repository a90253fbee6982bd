#include "nn/decoder.h"

#include <nlohmann/json.hpp>

#include "nn/decoder_stack.h"
#include "nn/last_token_classifier.h"
#include "nn/liger.h"
#include "nn/lm_text_encoder.h"
#include "nn/tensor_parallel.h"
#include "nn/transformer.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"

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

Tensor GatedMLP::operator()(const Tensor& input) const {
  Forward here(*this);
  const Tensor x = enter_parallel(build(), input);
  Tensor inner;  // (B, T, F)
  if (build().loss.liger.swiglu) {
    inner = liger_gated_product(gate_proj(x), up_proj(x));
  } else {
    const Tensor gate = activation(*this, act, gate_proj(x));
    const Tensor up = up_proj(x);
    inner = mul(gate, up);
  }
  return down_proj(inner);  // (B, T, C)
}

namespace {

Tensor split_heads(const Linear& proj, const RMSNorm* norm, const Tensor& x, const Dims& heads) {
  Tensor y = view(proj(x), heads);
  if (norm) y = (*norm)(y);
  return transpose(y, 1, 2);
}

using Decoder = DecoderStack<DecoderConfig, PreNormLayer<RMSNorm>, RMSNorm>;

}  // namespace

DecoderAttention::DecoderAttention(Module& parent, std::string_view name, const DecoderConfig& c)
    : Module(parent, name),
      config(c),
      q_proj(*this, "q_proj", c.hidden_size, c.num_attention_heads * c.head_dim, c.qkv_bias),
      k_proj(*this, "k_proj", c.hidden_size, c.num_key_value_heads * c.head_dim, c.qkv_bias),
      v_proj(*this, "v_proj", c.hidden_size, c.num_key_value_heads * c.head_dim, c.qkv_bias),
      o_proj(*this, "o_proj", c.num_attention_heads * c.head_dim, c.hidden_size, c.o_bias) {
  if (const TensorParallel* tp = build().tensor_parallel)
    for (int64_t heads : {c.num_attention_heads, c.num_key_value_heads})
      tp->share(heads == c.num_attention_heads ? "num_attention_heads" : "num_key_value_heads", heads);
  if (!c.qk_norm) return;
  q_norm = std::make_unique<RMSNorm>(*this, "q_norm", c.head_dim);
  k_norm = std::make_unique<RMSNorm>(*this, "k_norm", c.head_dim);
}

Tensor DecoderAttention::operator()(const Tensor& input, const CosSin& tables, const Tensor& mask, Tensor* weights) const {
  Forward here(*this);
  const Tensor x = enter_parallel(build(), input);
  const Dims heads{x.size(0), x.size(1), -1, config.head_dim};
  Tensor q = split_heads(q_proj, q_norm.get(), x, heads);   // (B, H, T, D)
  Tensor k = split_heads(k_proj, k_norm.get(), x, heads);   // (B, KV, T, D)
  const Tensor v = split_heads(v_proj, nullptr, x, heads);  // (B, KV, T, D)
  std::tie(q, k) = build().loss.liger.rope ? liger_rotary_pos_emb(q, k, tables) : apply_rotary_pos_emb(q, k, tables);
  AttentionCall call;
  call.mask = mask;
  call.dropout = config.attention_dropout;
  call.causal = config.causal;
  call.kv_groups = config.num_attention_heads / config.num_key_value_heads;
  call.softcap = config.softcap;
  Tensor out = attention(build(), q, k, v, call, weights);     // (B, T, H, D)
  out = contiguous(reshape(out, {x.size(0), x.size(1), -1}));  // (B, T, H D)
  out = o_proj(out);                                           // (B, T, C)
  return out;
}

std::unique_ptr<Model> make_decoder(Build& build, const DecoderConfig& d) {
  return std::make_unique<CausalLM<DecoderConfig, Decoder>>(build, d, lm_head(d));
}

std::unique_ptr<Model> make_decoder_classifier(Build& build, const Config& config, const DecoderConfig& d) {
  return std::make_unique<LastTokenClassifier<DecoderConfig, Decoder>>(build, config, d, "model", d.hidden_size, std::nullopt);
}

std::unique_ptr<TextEncoder> make_decoder_text_encoder(Module& parent, std::string_view name, const DecoderConfig& d) {
  return std::make_unique<LmTextEncoder<DecoderConfig, Decoder>>(parent, name, d, true);
}

}  // namespace plimsoll
