// transformers.models.gemma3: Gemma3ForCausalLM, the language model alone. Layers with a window and those without have rotary tables of
// their own; queries and keys are normalised once their heads are apart.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "model/family.h"
#include "nn/causal_lm.h"
#include "nn/gemma_layer.h"
#include "nn/masking.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

struct Gemma3Config : DecoderConfig {
  explicit Gemma3Config(const Config& c) {
    vocab_size = 262208;
    hidden_size = 2304;
    intermediate_size = 9216;
    num_hidden_layers = 26;
    num_attention_heads = 8;
    num_key_value_heads = 4;
    head_dim = 256;
    tie_word_embeddings = true;
    read_decoder_config(c, *this);
    c.require_divides("num_attention_heads", num_attention_heads, "hidden_size", hidden_size);
    hidden_act = c.text({"hidden_activation"}, "gelu_pytorch_tanh");
    qkv_bias = o_bias = c.flag({"attention_bias"}, false);
    c.number({"final_logit_softcapping"}, 0.0);
    final_logit_softcapping = c.find({"final_logit_softcapping"}) != nullptr;
    if (c.flag({"use_bidirectional_attention"}, false))
      throw Error("[" + c.source() + "] use_bidirectional_attention true is not simulated",
                  "leave it out: texts are read from left to right");
    const int64_t pattern = c.size({"sliding_window_pattern", "_sliding_window_pattern"}, 6);
    std::vector<bool> slides(static_cast<size_t>(num_hidden_layers));
    for (size_t i = 0; i < slides.size(); ++i) slides[i] = (static_cast<int64_t>(i) + 1) % pattern != 0;
    sliding_layer = sliding_layers(c, slides);
    sliding_window = plimsoll::sliding_window(c, 4096);
    if (!sliding_window)
      throw Error("[" + c.source() + "] sliding_window null: its mask is always made", "give sliding_window a number of tokens");
    rope = rope_of(c, "full_attention", "rope_scaling");
    local_rope = rope_of(c, "sliding_attention", "");
  }

  // rope_parameters has a mapping for each type of layer; the old rope_scaling is about those that see everything.
  RopeSettings rope_of(const Config& c, const char* type, const char* old) const {
    nlohmann::json own = nlohmann::json::object();
    const nlohmann::json* all = c.find({"rope_parameters"});
    if (all && all->is_object() && all->contains(type) && (*all)[type].is_object())
      own["rope_parameters"] = (*all)[type];
    else if (const nlohmann::json* scaling = *old ? c.find({old}) : nullptr)
      own["rope_parameters"] = *scaling;
    return rope_settings(Config(c.source() + ": " + type, own), {head_dim, 131072});
  }

  bool has(bool sliding) const { return std::find(sliding_layer.begin(), sliding_layer.end(), sliding) != sliding_layer.end(); }

  RopeSettings local_rope;
  bool final_logit_softcapping = false;
};

struct Gemma3Attention : Module {
  Gemma3Attention(Module& parent, std::string_view name, const Gemma3Config& c) : Module(parent, name), config(c) {}

  Tensor operator()(const Tensor& x, const CosSin& tables, const Tensor& mask, Tensor* weights) const {
    Forward here(*this);
    const Dims heads{x.size(0), x.size(1), -1, config.head_dim};
    Tensor q = transpose(view(q_proj(x), heads), 1, 2);        // (B, H, T, D)
    Tensor k = transpose(view(k_proj(x), heads), 1, 2);        // (B, KV, T, D)
    const Tensor v = transpose(view(v_proj(x), heads), 1, 2);  // (B, KV, T, D)
    q = q_norm(q);
    k = k_norm(k);
    std::tie(q, k) = apply_rotary_pos_emb(q, k, tables);
    AttentionCall call;
    call.mask = mask;
    call.dropout = config.attention_dropout;
    call.kv_groups = config.num_attention_heads / config.num_key_value_heads;
    Tensor out = attention(build(), q, k, v, call, weights);     // (B, T, H, D)
    out = contiguous(reshape(out, {x.size(0), x.size(1), -1}));  // (B, T, H D)
    out = o_proj(out);                                           // (B, T, C)
    return out;
  }

  const Gemma3Config& config;
  Linear q_proj{*this, "q_proj", config.hidden_size, (config.num_attention_heads * config.head_dim), config.qkv_bias};
  Linear k_proj{*this, "k_proj", config.hidden_size, (config.num_key_value_heads * config.head_dim), config.qkv_bias};
  Linear v_proj{*this, "v_proj", config.hidden_size, (config.num_key_value_heads * config.head_dim), config.qkv_bias};
  Linear o_proj{*this, "o_proj", (config.num_attention_heads * config.head_dim), config.hidden_size, config.o_bias};
  GemmaRMSNorm q_norm{*this, "q_norm", config.head_dim};
  GemmaRMSNorm k_norm{*this, "k_norm", config.head_dim};
};

using Gemma3DecoderLayer = FourNormLayer<Gemma3Config, Gemma3Attention>;

struct Gemma3TextModel : Module {
  Gemma3TextModel(Module& parent, std::string_view name, const Gemma3Config& c) : Module(parent, name), config(c) {
    if (c.has(false)) rotary_emb.emplace(*this, "rotary_emb", c.rope);
    if (c.has(true)) local_rotary_emb.emplace(*this, "rotary_emb", c.local_rope);
  }

  Module& add_layers() {
    for (int64_t i = 0; i < config.num_hidden_layers; ++i) layers.add(config);
    return *this;
  }

  Tensor operator()(const Tensor& input_ids, Tensors* states = nullptr, const Tensor& attention_mask = {}) {
    Forward here(*this);
    const Tensor embeds = embed_tokens(input_ids);  // (B, T, C)
    const Tensor positions = position_ids(build(), embeds.size(1));
    MaskArgs args{embeds.size(0), embeds.size(1), embeds.size(1), embeds.dtype(), positions, {}};
    args.attention_mask = attention_mask;
    const Tensor full_mask = create_causal_mask(build(), args);
    args.sliding_window = config.sliding_window;
    const Tensor local_mask = create_causal_mask(build(), args);
    Tensor hidden = embeds;
    const CosSin full = rotary_emb ? (*rotary_emb)(hidden, positions) : CosSin{},
                 local = local_rotary_emb ? (*local_rotary_emb)(hidden, positions) : CosSin{};
    build().position_ids = positions;
    for (size_t i = 0; i < layers.size(); ++i) {
      const bool slides = config.slides(i);
      auto run = [&layer = layers[i], tables = slides ? local : full, mask = slides ? local_mask : full_mask, positions](const Tensor& x) {
        return layer(x, tables, mask);
      };
      if (states) states->push_back(hidden);
      hidden = run_block(layers[i], run, hidden);
    }
    build().position_ids.reset();
    hidden = norm(hidden);
    if (states) states->push_back(hidden);
    return hidden;
  }

  const Tensor& embedding() const { return embed_tokens.weight; }

  const Gemma3Config& config;
  GemmaTextScaledWordEmbedding embed_tokens{*this, "embed_tokens", config.vocab_size, config.hidden_size};
  ModuleList<Gemma3DecoderLayer> layers{*this, "layers"};
  GemmaRMSNorm norm{add_layers(), "norm", config.hidden_size};
  std::optional<RotaryEmbedding> rotary_emb, local_rotary_emb;
};

struct Gemma3ForCausalLM : CausalLM<Gemma3Config, Gemma3TextModel> {
  using CausalLM::CausalLM;
  Tensor finish_logits(Tensor logits) const override { return settings.final_logit_softcapping ? soft_cap(std::move(logits)) : logits; }
  bool caps_logits() const override { return settings.final_logit_softcapping; }
};

std::unique_ptr<Model> make_gemma3(Build& build, const Config& c) {
  const Gemma3Config config(c);
  return std::make_unique<Gemma3ForCausalLM>(
      build, config, HeadSettings{.width = config.hidden_size, .vocab_size = config.vocab_size, .tied = config.tie_word_embeddings});
}

}  // namespace

const Family& gemma3_family() {
  static const Family kFamily{
      .name = "gemma3_text",
      .models = {{"gemma3_text", {"Gemma3ForCausalLM"}, InputKind::lm, 2048, make_gemma3}},
      .presets =
          {{"gemma-3-270m",
            R"({"vocab_size":262144,"hidden_size":640,"intermediate_size":2048,"num_hidden_layers":18,"num_attention_heads":4,"num_key_value_heads":1,"sliding_window":512})",
            4096},
           {"gemma-3-1b",
            R"({"vocab_size":262144,"hidden_size":1152,"intermediate_size":6912,"num_attention_heads":4,"num_key_value_heads":1,"sliding_window":512})",
            4096},
           {"gemma-3-4b-text", R"({"hidden_size":2560,"intermediate_size":10240,"num_hidden_layers":34,"sliding_window":1024})", 4096},
           {"gemma-3-12b-text",
            R"({"hidden_size":3840,"intermediate_size":15360,"num_hidden_layers":48,"num_attention_heads":16,"num_key_value_heads":8,"sliding_window":1024})",
            4096},
           {"gemma-3-27b-text",
            R"({"hidden_size":5376,"intermediate_size":21504,"num_hidden_layers":62,"num_attention_heads":32,"num_key_value_heads":16,"head_dim":128,"sliding_window":1024})",
            4096}},
      .adapters = {.lora = {"q_proj", "v_proj"},
                   .ia3 = {"q_proj", "v_proj", "down_proj"},
                   .feedforward = {"down_proj"},
                   .ln_tuning = {"input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm",
                                 "norm"}},
      .kernels = {.liger_loss = true},
      .gguf = "gemma3",
  };
  return kFamily;
}

}  // namespace plimsoll
