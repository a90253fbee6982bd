// transformers.models.gpt_neo: GPTNeoForCausalLM and GPTNeoForSequenceClassification. Attention is always eager, in fp32, with a
// mask of every position for each layer as a buffer; local layers see a window through it.
#include <nlohmann/json.hpp>

#include "model/family.h"
#include "nn/block_loop.h"
#include "nn/causal_lm.h"
#include "nn/feed_forward.h"
#include "nn/last_token_classifier.h"
#include "nn/layers.h"
#include "nn/masking.h"
#include "nn/transformer.h"
#include "ops/loss.h"
#include "ops/matmul.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

struct GPTNeoConfig {
  explicit GPTNeoConfig(const Config& c)
      : vocab_size(c.size({"vocab_size"}, 50257)),
        max_position_embeddings(c.size({"max_position_embeddings"}, 2048)),
        hidden_size(c.size({"hidden_size"}, 2048)),
        num_layers(c.size({"num_layers", "num_hidden_layers"}, 24)),
        num_heads(c.size({"num_heads", "num_attention_heads"}, 16)),
        intermediate_size(c.size({"intermediate_size"}, checked_mul(4, hidden_size))),
        activation_function(c.text({"activation_function"}, "gelu_new")),
        resid_dropout(c.number({"resid_dropout"}, 0.0)),
        embed_dropout(c.number({"embed_dropout"}, 0.0)),
        attention_dropout(c.number({"attention_dropout"}, 0.0)),
        tie_word_embeddings(c.flag({"tie_word_embeddings"}, true)) {
    reject_captured_outputs(c);
    c.require_divides("num_heads", num_heads, "hidden_size", hidden_size);
    const int64_t described = layers_described(c);
    if (described != num_layers)
      throw Error("[" + c.source() + "] attention_types describes " + std::to_string(described) + " layers, num_layers is " +
                      std::to_string(num_layers),
                  "e.g. [[[\"global\", \"local\"], 1]] for two layers");
  }

  // How many layers attention_types lists: [[kinds, repetitions], ...]. Global and local layers need the same memory.
  static int64_t layers_described(const Config& c) {
    const nlohmann::json* types = c.find({"attention_types"});
    if (!types) return 24;  // [[["global", "local"], 12]]
    auto refuse = [&](const nlohmann::json& what) {
      throw Error("[" + c.source() + "] attention_types has " + dump(what).substr(0, 80), "e.g. [[[\"global\", \"local\"], 12]]");
    };
    if (!types->is_array()) refuse(*types);
    int64_t layers = 0;
    for (const nlohmann::json& item : *types) {
      if (!item.is_array() || item.size() != 2 || !item[0].is_array() || !item[1].is_number_integer()) refuse(item);
      for (const nlohmann::json& kind : item[0])
        if (kind != "global" && kind != "local") refuse(kind);
      layers = checked_add(layers, checked_mul(static_cast<int64_t>(item[0].size()), item[1].get<int64_t>()));
    }
    return layers;
  }

  int64_t vocab_size, max_position_embeddings, hidden_size, num_layers, num_heads, intermediate_size;
  std::string activation_function;
  double resid_dropout, embed_dropout, attention_dropout;
  bool tie_word_embeddings;
};

struct GPTNeoSelfAttention : Module {
  GPTNeoSelfAttention(Module& parent, std::string_view name, const GPTNeoConfig& c)
      : Module(parent, name), config(c), bias(buffer("bias", {1, 1, c.max_position_embeddings, c.max_position_embeddings}, DType::bool_)) {}

  Tensor split_heads(const Tensor& x) const {
    const Tensor heads = view(x, {x.size(0), x.size(1), config.num_heads, config.hidden_size / config.num_heads});
    return permute(heads, {0, 2, 1, 3});  // (B, H, T, D)
  }

  // _attn: also gives its weights, (B, H, T, T)
  Tensor attend(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask, Tensor* kept) const {
    const Tensor query = to(q, DType::float32), key = to(k, DType::float32);
    Tensor weights = matmul(query, transpose(key, -1, -2));
    Tensor causal = slice(bias, 2, 0, query.size(-2));
    causal = slice(causal, 3, 0, key.size(-2));
    const Tensor mask_value = filled(tape(), "empty", {}, weights.dtype());
    weights = where(causal, weights, mask_value);
    weights = add(weights, mask);
    weights = softmax(weights);
    weights = to(weights, v.dtype());
    weights = attn_dropout(weights);
    *kept = weights;
    return matmul(weights, v);  // (B, H, T, D)
  }

  Tensor operator()(const Tensor& x, const Tensor& mask, Tensor* weights) const {
    Forward here(*this);
    Tensor query = q_proj(x), key = k_proj(x), value = v_proj(x);  // (B, T, C)
    query = split_heads(query);
    key = split_heads(key);
    value = split_heads(value);
    update_cache(build(), key, value);
    Tensor out = attend(query, key, value, mask, weights);
    out = contiguous(permute(out, {0, 2, 1, 3}));
    out = view(out, x.sizes());  // (B, T, C)
    out = out_proj(out);
    out = resid_dropout(out);
    return out;
  }

  const GPTNeoConfig& config;
  Tensor bias;
  Dropout attn_dropout{*this, "attn_dropout", config.attention_dropout};
  Dropout resid_dropout{*this, "resid_dropout", config.resid_dropout};
  Linear k_proj{*this, "k_proj", config.hidden_size, config.hidden_size, false};
  Linear v_proj{*this, "v_proj", config.hidden_size, config.hidden_size, false};
  Linear q_proj{*this, "q_proj", config.hidden_size, config.hidden_size, false};
  Linear out_proj{*this, "out_proj", config.hidden_size, config.hidden_size};
};

struct GPTNeoAttention : Module {
  GPTNeoAttention(Module& parent, std::string_view name, const GPTNeoConfig& c) : Module(parent, name), attention(*this, "attention", c) {}
  GPTNeoSelfAttention attention;
};

struct GPTNeoBlock : Module {
  GPTNeoBlock(Module& parent, std::string_view name, const GPTNeoConfig& c) : Module(parent, name), config(c) {}

  // Returns the hidden states and the attention's weights.
  Tensors operator()(const Tensor& x, const Tensor& mask) const {
    Forward here(*this);
    Tensor weights, residual = x;
    Tensor hidden = ln_1(x);  // (B, T, C)
    const Tensor attn_output = run_attention(attn.attention, hidden, &weights, mask);
    hidden = add(attn_output, residual);
    residual = hidden;
    hidden = ln_2(hidden);
    const Tensor feed_forward = run_part(mlp, hidden);
    hidden = add(residual, feed_forward);
    return {hidden, weights};
  }

  const GPTNeoConfig& config;
  LayerNorm ln_1{*this, "ln_1", config.hidden_size};
  GPTNeoAttention attn{*this, "attn", config};
  LayerNorm ln_2{*this, "ln_2", config.hidden_size};
  FeedForward mlp{
      *this, "mlp", {"c_fc", "c_proj", config.hidden_size, config.intermediate_size, config.activation_function, config.resid_dropout}};
};

struct GPTNeoModel : Module {
  GPTNeoModel(Module& parent, std::string_view name, const GPTNeoConfig& c) : Module(parent, name), config(c) {}

  Module& add_blocks() {
    for (int64_t i = 0; i < config.num_layers; ++i) h.add(config);
    return *this;
  }

  Tensor operator()(const Tensor& input_ids) {
    Forward here(*this);
    require_positions("gpt_neo", positions_in(build(), input_ids.size(1)), "max_position_embeddings", config.max_position_embeddings);
    const Tensor embeds = wte(input_ids);  // (B, T, C)
    const Tensor positions = position_ids(build(), embeds.size(1));
    MaskArgs args{embeds.size(0), embeds.size(1), embeds.size(1), embeds.dtype(), positions, {}};
    args.only_eager = true;
    const Tensor mask = create_causal_mask(build(), args);
    const Tensor position_embeds = wpe(positions);  // (1, T, C)
    Tensor hidden = add(embeds, position_embeds);
    hidden = drop(hidden);
    Tensors outputs;
    auto run = [mask](const GPTNeoBlock& block, const Tensor& x) { return block(x, mask); };
    hidden = run_blocks(h, std::move(hidden), outputs, run);
    hidden = ln_f(hidden);
    return hidden;
  }

  const Tensor& embedding() const { return wte.weight; }

  const GPTNeoConfig& config;
  Embedding wte{*this, "wte", config.vocab_size, config.hidden_size};
  Embedding wpe{*this, "wpe", config.max_position_embeddings, config.hidden_size};
  Dropout drop{*this, "drop", config.embed_dropout};
  ModuleList<GPTNeoBlock> h{*this, "h"};
  LayerNorm ln_f{add_blocks(), "ln_f", config.hidden_size};
};

std::unique_ptr<Model> make_gpt_neo(Build& build, const Config& c) {
  const GPTNeoConfig config(c);
  const HeadSettings head{
      .body = "transformer", .width = config.hidden_size, .vocab_size = config.vocab_size, .tied = config.tie_word_embeddings};
  return std::make_unique<CausalLM<GPTNeoConfig, GPTNeoModel>>(build, config, head);
}

std::unique_ptr<Model> make_gpt_neo_classifier(Build& build, const Config& c) {
  const GPTNeoConfig config(c);
  return std::make_unique<LastTokenClassifier<GPTNeoConfig, GPTNeoModel>>(build, c, config, "transformer", config.hidden_size,
                                                                          std::nullopt);
}

}  // namespace

const Family& gpt_neo_family() {
  static const Family kFamily{
      .name = "gpt_neo",
      .models = {{"gpt_neo", {"GPTNeoForCausalLM"}, InputKind::lm, 2048, make_gpt_neo},
                 {"gpt_neo-classifier", {"GPTNeoForSequenceClassification"}, InputKind::cls, 2048, make_gpt_neo_classifier}},
      .presets = {{"gpt-neo-125m", R"({"hidden_size":768,"num_layers":12,"num_heads":12,"attention_types":[[["global","local"],6]]})",
                   2048},
                  {"gpt-neo-1.3b", R"({})", 2048},
                  {"gpt-neo-2.7b", R"({"hidden_size":2560,"num_layers":32,"num_heads":20,"attention_types":[[["global","local"],16]]})",
                   2048}},
  };
  return kFamily;
}

}  // namespace plimsoll
