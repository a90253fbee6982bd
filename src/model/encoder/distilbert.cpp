// transformers.models.distilbert: DistilBertForMaskedLM and DistilBertForSequenceClassification.
#include "model/family.h"
#include "nn/classification.h"
#include "nn/layers.h"
#include "nn/masking.h"
#include "nn/self_attention.h"
#include "nn/transformer.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

// sinusoidal_pos_embds fills the table of positions with other numbers; it is a parameter all the same.
struct DistilBertConfig {
  explicit DistilBertConfig(const Config& c)
      : vocab_size(c.size({"vocab_size"}, 30522)),
        max_position_embeddings(c.size({"max_position_embeddings"}, 512)),
        n_layers(c.size({"n_layers", "num_hidden_layers"}, 6)),
        n_heads(c.size({"n_heads", "num_attention_heads"}, 12)),
        dim(c.size({"dim", "hidden_size"}, 768)),
        hidden_dim(c.size({"hidden_dim"}, 3072)),
        chunk_size_feed_forward(c.integer({"chunk_size_feed_forward"}, 0)),
        activation(c.text({"activation"}, "gelu")),
        dropout(c.number({"dropout"}, 0.1)),
        attention_dropout(c.number({"attention_dropout"}, 0.1)),
        seq_classif_dropout(c.number({"seq_classif_dropout"}, 0.2)),
        tie_word_embeddings(c.flag({"tie_word_embeddings"}, true)) {
    reject_captured_outputs(c);
    c.require_divides("n_heads", n_heads, "dim", dim);
  }
  int64_t vocab_size, max_position_embeddings, n_layers, n_heads, dim, hidden_dim, chunk_size_feed_forward;
  std::string activation;
  double dropout, attention_dropout, seq_classif_dropout;
  bool tie_word_embeddings;
};

struct DistilBertEmbeddings : Module {
  DistilBertEmbeddings(Module& parent, std::string_view name, const DistilBertConfig& c)
      : Module(parent, name), config(c), position_ids(buffer("position_ids", {1, c.max_position_embeddings}, DType::int64)) {}

  Tensor operator()(const Tensor& input_ids) const {
    Forward here(*this);
    require_positions("distilbert", input_ids.size(1), "max_position_embeddings", config.max_position_embeddings);
    const Tensor inputs_embeds = word_embeddings(input_ids);  // (B, T, C)
    const Tensor positions = slice(position_ids, 1, 0, input_ids.size(1));
    const Tensor position_embeds = position_embeddings(positions);  // (1, T, C)
    Tensor embeddings = add(inputs_embeds, position_embeds);
    embeddings = norm(embeddings);
    embeddings = dropout(embeddings);
    return embeddings;
  }

  const DistilBertConfig& config;
  Embedding word_embeddings{*this, "word_embeddings", config.vocab_size, config.dim};
  Embedding position_embeddings{*this, "position_embeddings", config.max_position_embeddings, config.dim};
  LayerNorm norm{*this, "LayerNorm", config.dim};
  Dropout dropout{*this, "dropout", config.dropout};
  Tensor position_ids;
};

struct FFN : Module {
  FFN(Module& parent, std::string_view name, const DistilBertConfig& c) : Module(parent, name), config(c) {}

  Tensor operator()(const Tensor& input) const {
    Forward here(*this);
    return apply_chunking_to_forward([this](const Tensor& piece) { return ff_chunk(piece); }, config.chunk_size_feed_forward, input);
  }

  Tensor ff_chunk(const Tensor& input) const {
    Tensor x = lin1(input);  // (B, T, F)
    x = activation(config.activation, x);
    x = lin2(x);  // (B, T, C)
    x = dropout(x);
    return x;
  }

  const DistilBertConfig& config;
  Dropout dropout{*this, "dropout", config.dropout};
  Linear lin1{*this, "lin1", config.dim, config.hidden_dim};
  Linear lin2{*this, "lin2", config.hidden_dim, config.dim};
};

struct TransformerBlock : Module {
  TransformerBlock(Module& parent, std::string_view name, const DistilBertConfig& c) : Module(parent, name), config(c) {}

  Tensor operator()(const Tensor& x, const Tensor& mask) const {
    Forward here(*this);
    Tensor weights;                                                         // eager attention's weights live until the block returns
    Tensor attention_output = run_attention(attention, x, &weights, mask);  // (B, T, C)
    attention_output = sa_layer_norm(add(attention_output, x));
    Tensor ffn_output = run_part(ffn, attention_output);
    ffn_output = output_layer_norm(add(ffn_output, attention_output));
    return ffn_output;
  }

  const DistilBertConfig& config;
  SelfAttention attention{*this,
                          "attention",
                          {config.dim,
                           config.n_heads,
                           {.mask = {},
                            .dropout = config.attention_dropout,
                            .causal = false,
                            .has_kv_groups = false,
                            .softmax_fp32 = false,
                            .cast_weights = false},
                           true,
                           "_lin"}};
  LayerNorm sa_layer_norm{*this, "sa_layer_norm", config.dim};
  FFN ffn{*this, "ffn", config};
  LayerNorm output_layer_norm{*this, "output_layer_norm", config.dim};
};

struct Transformer : Module {
  Transformer(Module& parent, std::string_view name, const DistilBertConfig& c) : Module(parent, name) {
    for (int64_t i = 0; i < c.n_layers; ++i) layer.add(c);
  }

  Tensor operator()(const Tensor& x, const Tensor& mask) {
    Forward here(*this);
    Tensor hidden = x;  // (B, T, C)
    for (TransformerBlock& block : layer) {
      auto run = [&block, mask](const Tensor& h) { return block(h, mask); };
      hidden = run_block(block, run, hidden);
    }
    return hidden;
  }

  ModuleList<TransformerBlock> layer{*this, "layer"};
};

struct DistilBertModel : Module {
  DistilBertModel(Module& parent, std::string_view name, const DistilBertConfig& c) : Module(parent, name), config(c) {}

  Tensor operator()(const Tensor& input_ids) {
    Forward here(*this);
    const Tensor embedded = embeddings(input_ids);  // (B, T, C)
    const MaskArgs args{embedded.size(0), embedded.size(1), embedded.size(1), embedded.dtype(), {}, {}};
    return transformer(embedded, create_bidirectional_mask(build(), args));
  }

  const DistilBertConfig& config;
  DistilBertEmbeddings embeddings{*this, "embeddings", config};
  Transformer transformer{*this, "transformer", config};
};

struct DistilBertForMaskedLM : Model {
  DistilBertForMaskedLM(Build& build, const Config& c) : Model(build), config(c), vocab_projector(make_projector()) {}

  std::unique_ptr<Linear> make_projector() {
    if (config.tie_word_embeddings)
      return std::make_unique<Linear>(*this, "vocab_projector", distilbert.embeddings.word_embeddings.weight, true);
    return std::make_unique<Linear>(*this, "vocab_projector", config.dim, config.vocab_size);
  }

  Output forward(const Batch& batch) override {
    const Tensor hidden = distilbert(batch.input_ids);  // (B, T, C)
    Tensor logits = vocab_transform(hidden);            // (B, T, C)
    logits = activation(config.activation, logits);
    logits = vocab_layer_norm(logits);
    logits = (*vocab_projector)(logits);  // (B, T, V)
    return {flat_cross_entropy(logits, batch.labels, false), {logits}};
  }

  DistilBertConfig config;
  DistilBertModel distilbert{*this, "distilbert", config};
  Linear vocab_transform{*this, "vocab_transform", config.dim, config.dim};
  LayerNorm vocab_layer_norm{*this, "vocab_layer_norm", config.dim};
  std::unique_ptr<Linear> vocab_projector;
};

struct DistilBertForSequenceClassification : Model {
  DistilBertForSequenceClassification(Build& build, const Config& c) : Model(build), config(c), classes(c) {}

  Output forward(const Batch& batch) override {
    const Tensor hidden = distilbert(batch.input_ids);  // (B, T, C)
    Tensor pooled = select(hidden, 1, 0);               // (B, C)
    pooled = pre_classifier(pooled);
    pooled = relu(pooled);
    pooled = dropout(pooled);
    const Tensor logits = classifier(pooled);  // (B, labels)
    return {classes.loss(logits, batch.labels), {logits}};
  }

  DistilBertConfig config;
  Classification classes;
  DistilBertModel distilbert{*this, "distilbert", config};
  Linear pre_classifier{*this, "pre_classifier", config.dim, config.dim};
  Linear classifier{*this, "classifier", config.dim, classes.num_labels};
  Dropout dropout{*this, "dropout", config.seq_classif_dropout};
};

std::unique_ptr<Model> make_distilbert(Build& build, const Config& config) {
  return std::make_unique<DistilBertForMaskedLM>(build, config);
}

std::unique_ptr<Model> make_distilbert_classifier(Build& build, const Config& config) {
  return std::make_unique<DistilBertForSequenceClassification>(build, config);
}

}  // namespace

const Family& distilbert_family() {
  static const Family kFamily{
      .name = "distilbert",
      .models = {{"distilbert", {"DistilBertForMaskedLM"}, InputKind::lm, 512, make_distilbert},
                 {"distilbert-classifier", {"DistilBertForSequenceClassification"}, InputKind::cls, 512, make_distilbert_classifier}},
      .presets = {{"distilbert-base-uncased", R"({})", 512},
                  {"distilbert-base-cased", R"({"vocab_size":28996})", 512},
                  {"distilbert-base-multilingual-cased", R"({"vocab_size":119547})", 512}},
  };
  return kFamily;
}

}  // namespace plimsoll
