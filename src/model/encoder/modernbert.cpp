// transformers.models.modernbert: ModernBertForMaskedLM and ModernBertForSequenceClassification. Some layers attend to a window around each
// token, for which there is a mask as soon as the sequence is longer than half of it.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "job/config_list.h"
#include "model/family.h"
#include "nn/classification.h"
#include "nn/decoder.h"
#include "nn/layers.h"
#include "nn/masking.h"
#include "nn/rotary.h"
#include "nn/transformer.h"
#include "ops/pointwise.h"
#include "ops/reduce.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

struct ModernBertConfig {
  explicit ModernBertConfig(const Config& c)
      : vocab_size(c.size({"vocab_size"}, 50368)),
        hidden_size(c.size({"hidden_size"}, 768)),
        intermediate_size(c.size({"intermediate_size"}, 1152)),
        num_hidden_layers(c.size({"num_hidden_layers"}, 22)),
        num_attention_heads(c.size({"num_attention_heads"}, 12)),
        local_attention(c.size({"local_attention"}, 128)),
        hidden_activation(c.text({"hidden_activation"}, "gelu")),
        classifier_activation(c.text({"classifier_activation"}, "gelu")),
        norm_bias(c.flag({"norm_bias"}, false)),
        attention_bias(c.flag({"attention_bias"}, false)),
        mlp_bias(c.flag({"mlp_bias"}, false)),
        decoder_bias(c.flag({"decoder_bias"}, true)),
        classifier_bias(c.flag({"classifier_bias"}, false)),
        tie_word_embeddings(c.flag({"tie_word_embeddings"}, true)),
        attention_dropout(c.number({"attention_dropout"}, 0.0)),
        embedding_dropout(c.number({"embedding_dropout"}, 0.0)),
        mlp_dropout(c.number({"mlp_dropout"}, 0.0)),
        classifier_dropout(c.number({"classifier_dropout"}, 0.0)),
        mean_pooling(c.text({"classifier_pooling"}, "cls") == "mean") {
    reject_captured_outputs(c);
    c.require_divides("num_attention_heads", num_attention_heads, "hidden_size", hidden_size);
    if (const std::string pooling = c.text({"classifier_pooling"}, "cls"); pooling != "cls" && pooling != "mean")
      throw Error(fmt::format("[{}] classifier_pooling '{}' is not known", c.source(), pooling), "known: cls, mean");
    if (c.flag({"sparse_prediction"}, false))
      throw Error(fmt::format("[{}] sparse_prediction true is not simulated: it depends on the labels", c.source()), "leave it false");
    const int64_t every = c.size({"global_attn_every_n_layers"}, 3);
    std::vector<bool> fallback;
    for (int64_t i = 0; i < num_hidden_layers; ++i) fallback.push_back(i % every != 0);
    slides = sliding_layers(c, fallback);
    for (const char* key : {"rope_parameters", "rope_scaling"})
      if (const nlohmann::json* rope = c.find({key})) require_default_rope(c, *rope);
  }

  // One set for all layers, or one for each kind of them.
  static void require_default_rope(const Config& c, const nlohmann::json& rope) {
    for (const nlohmann::json& part : rope.is_object() ? rope : nlohmann::json::array())
      if (part.is_object()) require_default_rope(c, part);
    const Config set(c.source() + ": rope_parameters", rope);
    if (const std::string type = set.text({"rope_type", "type"}, "default"); type != "default")
      throw Error(fmt::format("[{}] rope_type '{}' is not simulated", set.source(), type), "leave it out, or use default");
  }

  int64_t vocab_size, hidden_size, intermediate_size, num_hidden_layers, num_attention_heads, local_attention;
  std::string hidden_activation, classifier_activation;
  bool norm_bias, attention_bias, mlp_bias, decoder_bias, classifier_bias, tie_word_embeddings;
  double attention_dropout, embedding_dropout, mlp_dropout, classifier_dropout;
  bool mean_pooling;
  std::vector<bool> slides;  // by layer
};

struct ModernBertNorm : LayerNorm {
  ModernBertNorm(Module& parent, std::string_view name, const ModernBertConfig& c)
      : LayerNorm(parent, name, c.hidden_size, true, c.norm_bias) {}
};

struct ModernBertEmbeddings : Module {
  ModernBertEmbeddings(Module& parent, std::string_view name, const ModernBertConfig& c) : Module(parent, name), config(c) {}

  Tensor operator()(const Tensor& input_ids) const {
    Forward here(*this);
    Tensor hidden = tok_embeddings(input_ids);  // (B, T, C)
    require_input_grad(build(), hidden);
    hidden = norm(hidden);
    return drop(hidden);
  }

  const ModernBertConfig& config;
  Embedding tok_embeddings{*this, "tok_embeddings", config.vocab_size, config.hidden_size};
  ModernBertNorm norm{*this, "norm", config};
  Dropout drop{*this, "drop", config.embedding_dropout};
};

struct ModernBertMLP : Module {
  ModernBertMLP(Module& parent, std::string_view name, const ModernBertConfig& c) : Module(parent, name), config(c) {}

  Tensor operator()(const Tensor& x) const {
    Forward here(*this);
    const Tensors halves = chunk(Wi(x), 2, -1);  // (B, T, F) each
    Tensor hidden = activation(config.hidden_activation, halves[0]);
    hidden = mul(hidden, halves[1]);
    hidden = drop(hidden);
    return Wo(hidden);  // (B, T, C)
  }

  const ModernBertConfig& config;
  Linear Wi{*this, "Wi", config.hidden_size, checked_mul(2, config.intermediate_size), config.mlp_bias};
  Dropout drop{*this, "drop", config.mlp_dropout};
  Linear Wo{*this, "Wo", config.intermediate_size, config.hidden_size, config.mlp_bias};
};

// In fp32, whatever the type of x; the caller casts the result back.
Tensor rotate_wide(const Tensor& x, const Tensor& cos, const Tensor& sin) {
  const Tensor straight = mul(to(x, DType::float32), cos);
  Tensor turned = rotate_half(to(x, DType::float32));
  turned = mul(turned, sin);
  return add(straight, turned);
}

struct ModernBertAttention : Module {
  ModernBertAttention(Module& parent, std::string_view name, const ModernBertConfig& c) : Module(parent, name), config(c) {}

  Tensor operator()(const Tensor& x, const CosSin& tables, const Tensor& mask, Tensor* weights) const {
    Forward here(*this);
    const int64_t head_dim = config.hidden_size / config.num_attention_heads;
    const Tensor qkv = view(Wqkv(x), {x.size(0), x.size(1), 3, -1, head_dim});  // (B, T, 3, H, D)
    Tensors parts = unbind(qkv, -3);
    for (Tensor& part : parts) part = transpose(part, 1, 2);  // (B, H, T, D)
    Tensor &q = parts[0], &k = parts[1], &v = parts[2];
    {
      const Tensor cos = unsqueeze(tables.cos, 1), sin = unsqueeze(tables.sin, 1);
      const Tensor q_embed = rotate_wide(q, cos, sin), k_embed = rotate_wide(k, cos, sin);
      const Tensor rotated = to(q_embed, q.dtype());
      k = to(k_embed, k.dtype());
      q = rotated;
    }
    AttentionCall call;
    call.mask = mask;
    call.dropout = config.attention_dropout;
    call.causal = false;
    call.has_kv_groups = false;
    Tensor out = attention(build(), q, k, v, call, weights);     // (B, T, H, D)
    out = contiguous(reshape(out, {x.size(0), x.size(1), -1}));  // (B, T, C)
    out = out_drop(Wo(out));
    return out;
  }

  const ModernBertConfig& config;
  Linear Wqkv{*this, "Wqkv", config.hidden_size, checked_mul(3, config.hidden_size), config.attention_bias};
  Linear Wo{*this, "Wo", config.hidden_size, config.hidden_size, config.attention_bias};
  Dropout out_drop{*this, "out_drop", config.attention_dropout};
};

struct ModernBertEncoderLayer : Module {
  ModernBertEncoderLayer(Module& parent, std::string_view name, const ModernBertConfig& c, bool first)
      : Module(parent, name), config(c), attn_norm(first ? nullptr : std::make_unique<ModernBertNorm>(*this, "attn_norm", c)) {}

  Tensor operator()(const Tensor& x, const CosSin& tables, const Tensor& mask) const {
    Forward here(*this);
    Tensor weights, attn_output;  // these live until the layer returns
    {
      const Tensor normed = attn_norm ? (*attn_norm)(x) : x;  // (B, T, C)
      attn_output = run_attention(attn, normed, &weights, tables, mask);
    }
    Tensor hidden = add(x, attn_output);
    const Tensor branch = run_part(mlp, mlp_norm(hidden));
    return add(hidden, branch);
  }

  const ModernBertConfig& config;
  std::unique_ptr<ModernBertNorm> attn_norm;
  ModernBertAttention attn{*this, "attn", config};
  ModernBertNorm mlp_norm{*this, "mlp_norm", config};
  ModernBertMLP mlp{*this, "mlp", config};
};

struct ModernBertModel : Module {
  ModernBertModel(Module& parent, std::string_view name, const ModernBertConfig& c) : Module(parent, name), config(c) {
    const RopeSettings rope{.dim = c.hidden_size / c.num_attention_heads};
    for (const bool sliding : {false, true})
      if (std::find(c.slides.begin(), c.slides.end(), sliding) != c.slides.end())
        rotary_emb[sliding] = std::make_unique<RotaryEmbedding>(*this, "rotary_emb", rope);
  }
  Module& add_layers() {
    for (int64_t i = 0; i < config.num_hidden_layers; ++i) layers.add(config, i == 0);
    return *this;
  }

  Tensor operator()(const Tensor& input_ids) {
    Forward here(*this);
    const int64_t batch = input_ids.size(0), tokens = input_ids.size(1);
    const Tensor position_ids = unsqueeze(arange(tape(), tokens), 0);  // (1, T)
    const Tensor embedding_output = embeddings(input_ids);             // (B, T, C)
    Tensor hidden = embedding_output;
    MaskArgs args{batch, tokens, tokens, hidden.dtype(), {}, {}};
    const Tensor full = create_bidirectional_mask(build(), args);
    args.sliding_window = config.local_attention / 2;
    const Tensor sliding = create_bidirectional_mask(build(), args);
    CosSin tables[2];
    for (const bool kind : {false, true})
      if (rotary_emb[kind]) tables[kind] = (*rotary_emb[kind])(hidden, position_ids);
    for (size_t i = 0; i < layers.size(); ++i) {
      const bool slides = config.slides[i];
      const auto run = [&layer = layers[i], own = tables[slides], mask = slides ? sliding : full](const Tensor& x) {
        return layer(x, own, mask);
      };
      hidden = run_block(layers[i], run, hidden);
    }
    return final_norm(hidden);
  }

  const ModernBertConfig& config;
  ModernBertEmbeddings embeddings{*this, "embeddings", config};
  ModuleList<ModernBertEncoderLayer> layers{*this, "layers"};
  ModernBertNorm final_norm{add_layers(), "final_norm", config};
  std::unique_ptr<RotaryEmbedding> rotary_emb[2];  // of layers that attend to everything, and to a window
};

struct ModernBertPredictionHead : Module {
  ModernBertPredictionHead(Module& parent, std::string_view name, const ModernBertConfig& c) : Module(parent, name), config(c) {}

  Tensor operator()(const Tensor& x) const {
    Forward here(*this);
    Tensor hidden = dense(x);
    hidden = activation(config.classifier_activation, hidden);
    return norm(hidden);
  }

  const ModernBertConfig& config;
  Linear dense{*this, "dense", config.hidden_size, config.hidden_size, config.classifier_bias};
  ModernBertNorm norm{*this, "norm", config};
};

struct ModernBertForMaskedLM : Model {
  ModernBertForMaskedLM(Build& build, const Config& c)
      : Model(build),
        config(c),
        decoder(config.tie_word_embeddings
                    ? std::make_unique<Linear>(*this, "decoder", model.embeddings.tok_embeddings.weight, config.decoder_bias)
                    : std::make_unique<Linear>(*this, "decoder", config.hidden_size, config.vocab_size, config.decoder_bias)) {}

  Output forward(const Batch& batch) override {
    const Tensor last_hidden_state = model(batch.input_ids);  // (B, T, C)
    const Tensor logits = (*decoder)(head(last_hidden_state));
    return {flat_cross_entropy(logits, batch.labels, true), {logits}};
  }

  ModernBertConfig config;
  ModernBertModel model{*this, "model", config};
  ModernBertPredictionHead head{*this, "head", config};
  std::unique_ptr<Linear> decoder;
};

struct ModernBertForSequenceClassification : Model {
  ModernBertForSequenceClassification(Build& build, const Config& c) : Model(build), config(c), classes(c) {}

  Output forward(const Batch& batch) override {
    const Tensor last_hidden_state = model(batch.input_ids);  // (B, T, C)
    Tensor mask = batch.attention_mask;                       // (B, T)
    const Tensor pooled = config.mean_pooling ? mean_of(last_hidden_state, mask) : select(last_hidden_state, 1, 0);
    Tensor pooled_output = head(pooled);  // (B, C)
    pooled_output = drop(pooled_output);
    const Tensor logits = classifier(pooled_output);  // (B, labels)
    return {classes.loss(logits, batch.labels), {logits}};
  }

  // Of the tokens that are not padding.
  Tensor mean_of(const Tensor& states, Tensor& mask) const {
    if (!mask) mask = filled(tape(), "ones", {states.size(0), states.size(1)}, DType::bool_);
    Tensor total = mul(states, unsqueeze(mask, -1));
    total = sum(total, {1}, false);
    const Tensor counted = sum(mask, {1}, true);
    return div(total, counted);
  }

  ModernBertConfig config;
  Classification classes;
  ModernBertModel model{*this, "model", config};
  ModernBertPredictionHead head{*this, "head", config};
  Dropout drop{*this, "drop", config.classifier_dropout};
  Linear classifier{*this, "classifier", config.hidden_size, classes.num_labels};
};

std::unique_ptr<Model> make_modernbert(Build& build, const Config& config) {
  return std::make_unique<ModernBertForMaskedLM>(build, config);
}

std::unique_ptr<Model> make_modernbert_classifier(Build& build, const Config& config) {
  return std::make_unique<ModernBertForSequenceClassification>(build, config);
}

}  // namespace

const Family& modernbert_family() {
  static const Family kFamily{
      .name = "modernbert",
      .models = {{"modernbert", {"ModernBertForMaskedLM"}, InputKind::lm, 1024, make_modernbert},
                 {"modernbert-classifier", {"ModernBertForSequenceClassification"}, InputKind::cls, 1024, make_modernbert_classifier}},
      .presets = {{"modernbert-base", R"({})", 1024},
                  {"modernbert-large", R"({"hidden_size":1024,"intermediate_size":2624,"num_hidden_layers":28,"num_attention_heads":16})",
                   1024}},
  };
  return kFamily;
}

}  // namespace plimsoll
