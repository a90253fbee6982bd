// The encoder that BERT, RoBERTa and ELECTRA share, module for module: embeddings, layers, pooler. ALBERT has its own layers
// under the same embeddings. Heads are in model/.
#pragma once

#include "job/config.h"
#include "nn/layers.h"
#include "nn/model.h"
#include "nn/transformer.h"

namespace plimsoll {

// What the classes that are configured alike have as defaults; BERT's own.
struct BertDefaults {
  int64_t vocab_size = 30522, hidden_size = 768, num_hidden_layers = 12, num_attention_heads = 12, intermediate_size = 3072;
  std::optional<int64_t> embedding_size = {};  // empty: there is no such setting, embeddings are as wide as the layers
  const char* hidden_act = "gelu";
  double dropout = 0.1;
};

struct BertConfig {
  explicit BertConfig(const Config& config, const BertDefaults& defaults = {});
  int64_t vocab_size, hidden_size, embedding_size, num_hidden_layers, num_attention_heads, intermediate_size;
  int64_t max_position_embeddings, type_vocab_size;
  std::string hidden_act;
  double hidden_dropout_prob, attention_probs_dropout_prob, classifier_dropout;
  bool is_decoder, tie_word_embeddings;
  int64_t chunk_size_feed_forward;          // tokens a piece of the feed-forward; 0: all at once
  std::optional<int64_t> padding_position;  // RoBERTa counts positions from here, over the tokens that are not padding
};

struct BertEmbeddings : Module {
  BertEmbeddings(Module& parent, std::string_view name, const BertConfig& c);
  Tensor operator()(const Tensor& input_ids) const;
  Module& add_positions();
  Tensor positions(const Tensor& input_ids) const;  // (1, T), or (B, T) when counted from ids
  const BertConfig& config;
  std::unique_ptr<Embedding> position_embeddings;
  Embedding word_embeddings, token_type_embeddings;
  LayerNorm norm;
  Dropout dropout;
  Tensor position_ids, token_type_ids;  // buffers, (1, max_position_embeddings)
};

struct BertSelfAttention : Module {
  BertSelfAttention(Module& parent, std::string_view name, const BertConfig& c) : Module(parent, name), config(c) {}
  Tensor operator()(const Tensor& x, const Tensor& mask, Tensor* weights) const;
  const BertConfig& config;
  Linear query{*this, "query", config.hidden_size, config.hidden_size};
  Linear key{*this, "key", config.hidden_size, config.hidden_size};
  Linear value{*this, "value", config.hidden_size, config.hidden_size};
};

// BertSelfOutput and BertOutput: dense, dropout, norm of the sum with the residual.
struct BertOutput : Module {
  BertOutput(Module& parent, std::string_view name, int64_t in, const BertConfig& c);
  Tensor operator()(const Tensor& x, const Tensor& residual) const;
  Linear dense;
  LayerNorm norm;
  Dropout dropout;
};

struct BertAttention : Module {
  BertAttention(Module& parent, std::string_view name, const BertConfig& c) : Module(parent, name), config(c) {}
  Tensor operator()(const Tensor& x, const Tensor& mask, Tensor* weights) const;
  const BertConfig& config;
  BertSelfAttention self{*this, "self", config};
  BertOutput output{*this, "output", config.hidden_size, config};
};

struct BertIntermediate : Module {
  BertIntermediate(Module& parent, std::string_view name, const BertConfig& c) : Module(parent, name), config(c) {}
  Tensor operator()(const Tensor& x) const;
  const BertConfig& config;
  Linear dense{*this, "dense", config.hidden_size, config.intermediate_size};
};

struct BertLayer : Module {
  BertLayer(Module& parent, std::string_view name, const BertConfig& c) : Module(parent, name), config(c) {}
  Tensor operator()(const Tensor& x, const Tensor& mask) const;
  Tensor feed_forward_chunk(const Tensor& x) const;
  const BertConfig& config;
  BertAttention attention{*this, "attention", config};
  BertIntermediate intermediate{*this, "intermediate", config};
  BertOutput output{*this, "output", config.intermediate_size, config};
};

struct BertEncoder : Module {
  BertEncoder(Module& parent, std::string_view name, const BertConfig& c);
  Tensor operator()(const Tensor& x, const Tensor& mask);
  ModuleList<BertLayer> layer{*this, "layer"};
};

struct BertPooler : Module {
  BertPooler(Module& parent, std::string_view name, const BertConfig& c) : Module(parent, name), config(c) {}
  Tensor operator()(const Tensor& x) const;  // (B, T, C) -> (B, C)
  const BertConfig& config;
  Linear dense{*this, "dense", config.hidden_size, config.hidden_size};
};

struct BertModel : Module {
  BertModel(Module& parent, std::string_view name, const BertConfig& c, bool add_pooling_layer);
  struct Outputs {
    Tensor last_hidden_state;  // (B, T, C)
    Tensor pooler_output;      // (B, C), undefined without a pooler
  };
  Outputs operator()(const Tensor& input_ids);
  void check_positions(int64_t tokens) const;
  const BertConfig& config;
  BertEmbeddings embeddings;
  BertEncoder encoder;
  std::unique_ptr<BertPooler> pooler;
};

// Of pre-training on pairs of sentences: cross-entropy of the tokens plus that of the pairs.
Tensor pair_loss(const Tensor& token_scores, const Tensor& pair_scores, const Batch& batch);

// The projection to the vocabulary: its weight is the embedding's and its bias its owner's, unless untied.
struct BertDecoder : Module {
  BertDecoder(Module& parent, std::string_view name, const BertConfig& c, const Tensor& embedding, const Tensor& owner_bias);
  Tensor operator()(const Tensor& x) const;
  Tensor weight, bias;
};

}  // namespace plimsoll
