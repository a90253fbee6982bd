// transformers.models.biogpt: BioGptForCausalLM and BioGptForSequenceClassification.
#include "model/family.h"
#include "nn/causal_lm.h"
#include "nn/classification.h"
#include "nn/layers.h"
#include "nn/masking.h"
#include "nn/self_attention.h"
#include "nn/transformer.h"
#include "ops/pointwise.h"
#include "ops/reduce.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

struct BioGptConfig {
  explicit BioGptConfig(const Config& c)
      : vocab_size(c.size({"vocab_size"}, 42384)),
        hidden_size(c.size({"hidden_size"}, 1024)),
        num_hidden_layers(c.size({"num_hidden_layers"}, 24)),
        num_attention_heads(c.size({"num_attention_heads"}, 16)),
        intermediate_size(c.size({"intermediate_size"}, 4096)),
        max_position_embeddings(c.size({"max_position_embeddings"}, 1024)),
        hidden_act(c.text({"hidden_act"}, "gelu")),
        hidden_dropout_prob(c.number({"hidden_dropout_prob"}, 0.1)),
        attention_probs_dropout_prob(c.number({"attention_probs_dropout_prob"}, 0.1)),
        activation_dropout(c.number({"activation_dropout"}, 0.0)),
        tie_word_embeddings(c.flag({"tie_word_embeddings"}, true)) {
    reject_captured_outputs(c);
    c.require_divides("num_attention_heads", num_attention_heads, "hidden_size", hidden_size);
  }
  int64_t vocab_size, hidden_size, num_hidden_layers, num_attention_heads, intermediate_size, max_position_embeddings;
  std::string hidden_act;
  double hidden_dropout_prob, attention_probs_dropout_prob, activation_dropout;
  bool tie_word_embeddings;
};

// Positions start at 2.
struct BioGptLearnedPositionalEmbedding : Embedding {
  BioGptLearnedPositionalEmbedding(Module& parent, std::string_view name, int64_t rows, int64_t width)
      : Embedding(parent, name, checked_add(rows, 2), width) {}
  Tensor operator()(const Tensor& position_ids) const {
    Forward here(*this);
    return Embedding::operator()(nondiff("add", position_ids, DType::int64));
  }
};

// Scaled also where scale_embedding is off: by 1.
struct BioGptScaledWordEmbedding : Embedding {
  using Embedding::Embedding;
  Tensor scaled(const Tensor& embeds, DType) const override { return mul_scalar(embeds); }
};

struct BioGptDecoderLayer : Module {
  BioGptDecoderLayer(Module& parent, std::string_view name, const BioGptConfig& c) : Module(parent, name), config(c) {}

  Tensor operator()(const Tensor& x, const Tensor& mask) const {
    Forward here(*this);
    Tensor weights, residual = x;
    Tensor hidden = self_attn_layer_norm(x);  // (B, T, C)
    hidden = run_attention(self_attn, hidden, &weights, mask);
    hidden = dropout(hidden, config.hidden_dropout_prob);
    hidden = add(residual, hidden);
    residual = hidden;
    hidden = final_layer_norm(hidden);
    hidden = fc1(hidden);  // (B, T, F)
    hidden = activation(config.hidden_act, hidden);
    hidden = dropout(hidden, config.activation_dropout);
    hidden = fc2(hidden);  // (B, T, C)
    hidden = dropout(hidden, config.hidden_dropout_prob);
    hidden = add(residual, hidden);
    return hidden;
  }

  const BioGptConfig& config;
  SelfAttention self_attn{
      *this,
      "self_attn",
      {config.hidden_size,
       config.num_attention_heads,
       {.mask = {}, .dropout = config.attention_probs_dropout_prob, .has_kv_groups = false, .softmax_fp32 = false, .cast_weights = false}}};
  LayerNorm self_attn_layer_norm{*this, "self_attn_layer_norm", config.hidden_size};
  Linear fc1{*this, "fc1", config.hidden_size, config.intermediate_size};
  Linear fc2{*this, "fc2", config.intermediate_size, config.hidden_size};
  LayerNorm final_layer_norm{*this, "final_layer_norm", config.hidden_size};
};

struct BioGptModel : Module {
  BioGptModel(Module& parent, std::string_view name, const BioGptConfig& c) : Module(parent, name), config(c) {}

  Module& add_layers() {
    for (int64_t i = 0; i < config.num_hidden_layers; ++i) layers.add(config);
    return *this;
  }

  Tensor operator()(const Tensor& input_ids) {
    Forward here(*this);
    require_positions("biogpt", input_ids.size(1), "max_position_embeddings", config.max_position_embeddings);
    const Tensor embeds = embed_tokens(input_ids);  // (B, T, C)
    const bool given = build().batch && build().batch->attention_mask;
    const Tensor attention_mask =
        given ? build().batch->attention_mask : filled(tape(), "ones", {embeds.size(0), embeds.size(1)}, DType::float32);
    const Tensor mask =
        create_causal_mask(build(), {embeds.size(0), embeds.size(1), embeds.size(1), embeds.dtype(), {}, {}, false, attention_mask});
    const Tensor ids = position_ids(build(), embeds.size(1));
    const Tensor positions = embed_positions(ids);  // (1, T, C)
    Tensor hidden = add(embeds, positions);
    hidden = dropout(hidden, config.hidden_dropout_prob);
    build().position_ids = ids;
    for (BioGptDecoderLayer& layer : layers) {
      if (drops_layer(tape())) continue;
      auto run = [&layer, mask, ids](const Tensor& x) { return layer(x, mask); };
      hidden = run_block(layer, run, hidden);
    }
    build().position_ids.reset();
    hidden = layer_norm(hidden);
    return hidden;
  }

  const Tensor& embedding() const { return embed_tokens.weight; }

  const BioGptConfig& config;
  BioGptScaledWordEmbedding embed_tokens{*this, "embed_tokens", config.vocab_size, config.hidden_size};
  BioGptLearnedPositionalEmbedding embed_positions{*this, "embed_positions", config.max_position_embeddings, config.hidden_size};
  ModuleList<BioGptDecoderLayer> layers{*this, "layers"};
  LayerNorm layer_norm{add_layers(), "layer_norm", config.hidden_size};
};

// Its own way to the last token: the number of tokens that are not padding.
struct BioGptForSequenceClassification : Model {
  BioGptForSequenceClassification(Build& build, const Config& c)
      : Model(build), config(c), classes(c), has_padding_token(!c.is_null("pad_token_id")) {}

  Output forward(const Batch& batch) override {
    const Tensor hidden = biogpt(batch.input_ids);  // (B, T, C)
    const Tensor logits = score(hidden);            // (B, T, labels)
    const Tensor sequence_length = has_padding_token ? last_positions(batch.input_ids) : Tensor();
    const Tensor pooled = last_scores(logits, sequence_length);  // (B, labels)
    return {classes.loss(pooled, batch.labels), {pooled}};
  }

  static Tensor last_positions(const Tensor& input_ids) {
    const Tensor tokens = sum(compare_scalar("ne", input_ids), {-1}, false);  // (B)
    return nondiff("sub", tokens, DType::int64);
  }

  static Tensor last_scores(const Tensor& logits, const Tensor& positions) {
    const Tensor rows = arange(logits.tape(), logits.size(0));
    return positions ? index(logits, {rows, positions}) : index(select(logits, 1, -1), {rows});
  }

  BioGptConfig config;
  Classification classes;
  bool has_padding_token;
  BioGptModel biogpt{*this, "biogpt", config};
  Linear score{*this, "score", config.hidden_size, classes.num_labels, false};
};

std::unique_ptr<Model> make_biogpt(Build& build, const Config& c) {
  const BioGptConfig config(c);
  const HeadSettings head{.body = "biogpt",
                          .head = "output_projection",
                          .width = config.hidden_size,
                          .vocab_size = config.vocab_size,
                          .tied = config.tie_word_embeddings,
                          .upcast_before_4_49 = false};
  return std::make_unique<CausalLM<BioGptConfig, BioGptModel>>(build, config, head);
}

std::unique_ptr<Model> make_biogpt_classifier(Build& build, const Config& config) {
  return std::make_unique<BioGptForSequenceClassification>(build, config);
}

}  // namespace

const Family& biogpt_family() {
  static const Family kFamily{
      .name = "biogpt",
      .models = {{"biogpt", {"BioGptForCausalLM"}, InputKind::lm, 1024, make_biogpt},
                 {"biogpt-classifier", {"BioGptForSequenceClassification"}, InputKind::cls, 1024, make_biogpt_classifier}},
      .presets =
          {{"biogpt", R"({})", 1024},
           {"biogpt-large",
            R"({"hidden_size":1600,"num_hidden_layers":48,"num_attention_heads":25,"intermediate_size":6400,"vocab_size":57717,"max_position_embeddings":2048})",
            2048}},
  };
  return kFamily;
}

}  // namespace plimsoll
