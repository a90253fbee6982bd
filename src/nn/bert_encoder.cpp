#include "nn/bert_encoder.h"

#include "nn/masking.h"
#include "ops/matmul.h"
#include "ops/pointwise.h"
#include "ops/reduce.h"
#include "ops/reshape.h"

namespace plimsoll {

BertConfig::BertConfig(const Config& c, const BertDefaults& d)
    : vocab_size(c.size({"vocab_size"}, d.vocab_size)),
      hidden_size(c.size({"hidden_size"}, d.hidden_size)),
      embedding_size(d.embedding_size ? c.size({"embedding_size"}, *d.embedding_size) : hidden_size),
      num_hidden_layers(c.size({"num_hidden_layers"}, d.num_hidden_layers)),
      num_attention_heads(c.size({"num_attention_heads"}, d.num_attention_heads)),
      intermediate_size(c.size({"intermediate_size"}, d.intermediate_size)),
      max_position_embeddings(c.size({"max_position_embeddings"}, 512)),
      type_vocab_size(c.size({"type_vocab_size"}, 2)),
      hidden_act(c.text({"hidden_act"}, d.hidden_act)),
      hidden_dropout_prob(c.number({"hidden_dropout_prob"}, d.dropout)),
      attention_probs_dropout_prob(c.number({"attention_probs_dropout_prob"}, d.dropout)),
      classifier_dropout(c.number({"classifier_dropout"}, hidden_dropout_prob)),
      is_decoder(c.flag({"is_decoder"}, false)),
      tie_word_embeddings(c.flag({"tie_word_embeddings"}, true)),
      chunk_size_feed_forward(c.integer({"chunk_size_feed_forward"}, 0)) {
  reject_captured_outputs(c);
  c.require_divides("num_attention_heads", num_attention_heads, "hidden_size", hidden_size);
  if (c.flag({"add_cross_attention"}, false))
    throw Error("[" + c.source() + "] add_cross_attention true is not supported", "leave it false: there is no encoder to attend to");
}

// ---- embeddings -------------------------------------------------------------------------------------------------------

BertEmbeddings::BertEmbeddings(Module& parent, std::string_view name, const BertConfig& c)
    : Module(parent, name),
      config(c),
      word_embeddings(*this, "word_embeddings", c.vocab_size, c.embedding_size),
      token_type_embeddings(c.padding_position ? *this : add_positions(), "token_type_embeddings", c.type_vocab_size, c.embedding_size),
      norm(*this, "LayerNorm", c.embedding_size),
      dropout(*this, "dropout", c.hidden_dropout_prob),
      position_ids(buffer("position_ids", {1, c.max_position_embeddings}, DType::int64)),
      token_type_ids(buffer("token_type_ids", {1, c.max_position_embeddings}, DType::int64)) {
  if (c.padding_position) add_positions();  // RoBERTa makes them last
}

Module& BertEmbeddings::add_positions() {
  position_embeddings = std::make_unique<Embedding>(*this, "position_embeddings", config.max_position_embeddings, config.embedding_size);
  return *this;
}

Tensor BertEmbeddings::positions(const Tensor& input_ids) const {
  if (!config.padding_position) return slice(position_ids, 1, 0, input_ids.size(1));
  // create_position_ids_from_input_ids: cumsum(ids != padding) * (ids != padding) + padding_idx
  Tensor not_padding = compare_scalar("ne", input_ids);
  const Tensor mask = nondiff("_to_copy", not_padding, DType::int32);  // (B, T)
  not_padding.reset();
  Tensor steps = cumsum(mask, 1, DType::int64);
  for (const char* name : {"_to_copy", "add", "mul"}) steps = nondiff(name, steps, DType::int32);
  Tensor ids = nondiff("_to_copy", steps, DType::int64);
  ids = nondiff("add", ids, DType::int64);
  return ids;
}

Tensor BertEmbeddings::operator()(const Tensor& input_ids) const {
  Forward here(*this);
  const int64_t batch = input_ids.size(0), tokens = input_ids.size(1);
  const Tensor ids = positions(input_ids);
  const Tensor types = expand(nondiff("gather", ids, DType::int64), {batch, tokens});
  const Tensor inputs_embeds = word_embeddings(input_ids);      // (B, T, C)
  const Tensor type_embeddings = token_type_embeddings(types);  // (B, T, C)
  Tensor embeddings = add(inputs_embeds, type_embeddings);
  const Tensor position_embeds = (*position_embeddings)(ids);  // (1 or B, T, C)
  embeddings = add(embeddings, position_embeds);
  embeddings = norm(embeddings);
  embeddings = dropout(embeddings);
  return embeddings;
}

// ---- a layer ----------------------------------------------------------------------------------------------------------

Tensor BertSelfAttention::operator()(const Tensor& x, const Tensor& mask, Tensor* weights) const {
  Forward here(*this);
  const Dims heads{x.size(0), x.size(1), -1, config.hidden_size / config.num_attention_heads};
  const Tensor q = transpose(view(query(x), heads), 1, 2);  // (B, H, T, D)
  const Tensor k = transpose(view(key(x), heads), 1, 2);
  const Tensor v = transpose(view(value(x), heads), 1, 2);
  AttentionCall call;
  call.mask = mask;
  call.dropout = config.attention_probs_dropout_prob;
  call.causal = config.is_decoder;
  call.has_kv_groups = false;
  call.softmax_fp32 = false;
  call.cast_weights = false;
  Tensor out = attention(build(), q, k, v, call, weights);     // (B, T, H, D)
  out = contiguous(reshape(out, {x.size(0), x.size(1), -1}));  // (B, T, C)
  return out;
}

BertOutput::BertOutput(Module& parent, std::string_view name, int64_t in, const BertConfig& c)
    : Module(parent, name),
      dense(*this, "dense", in, c.hidden_size),
      norm(*this, "LayerNorm", c.hidden_size),
      dropout(*this, "dropout", c.hidden_dropout_prob) {}

Tensor BertOutput::operator()(const Tensor& x, const Tensor& residual) const {
  Forward here(*this);
  Tensor hidden = dense(x);  // (B, T, C)
  hidden = dropout(hidden);
  hidden = norm(add(hidden, residual));
  return hidden;
}

Tensor BertAttention::operator()(const Tensor& x, const Tensor& mask, Tensor* weights) const {
  Forward here(*this);
  const Tensor attention_output = self(x, mask, weights);  // (B, T, C)
  return output(attention_output, x);
}

Tensor BertIntermediate::operator()(const Tensor& x) const {
  Forward here(*this);
  Tensor hidden = dense(x);  // (B, T, F)
  hidden = activation(config.hidden_act, hidden);
  return hidden;
}

Tensor BertLayer::operator()(const Tensor& x, const Tensor& mask) const {
  Forward here(*this);
  Tensor weights;                                                               // eager attention's weights live until the layer returns
  const Tensor attention_output = run_attention(attention, x, &weights, mask);  // (B, T, C)
  auto forward = [this](const Tensor& piece) { return feed_forward_chunk(piece); };
  return apply_chunking_to_forward(forward, config.chunk_size_feed_forward, attention_output);
}

Tensor BertLayer::feed_forward_chunk(const Tensor& x) const {
  const Tensor intermediate_output = intermediate(x);  // (B, T, F)
  return output(intermediate_output, x);               // (B, T, C)
}

// ---- the model --------------------------------------------------------------------------------------------------------

BertEncoder::BertEncoder(Module& parent, std::string_view name, const BertConfig& c) : Module(parent, name) {
  for (int64_t i = 0; i < c.num_hidden_layers; ++i) layer.add(c);
}

Tensor BertEncoder::operator()(const Tensor& x, const Tensor& mask) {
  Forward here(*this);
  Tensor hidden = x;
  for (BertLayer& block : layer) {
    auto run = [&block, mask](const Tensor& h) { return block(h, mask); };
    hidden = run_block(block, run, hidden);
  }
  return hidden;
}

Tensor BertPooler::operator()(const Tensor& x) const {
  Forward here(*this);
  const Tensor first_token = select(x, 1, 0);  // (B, C)
  Tensor pooled = dense(first_token);
  pooled = tanh(pooled);
  return pooled;
}

BertModel::BertModel(Module& parent, std::string_view name, const BertConfig& c, bool add_pooling_layer)
    : Module(parent, name), config(c), embeddings(*this, "embeddings", c), encoder(*this, "encoder", c) {
  if (add_pooling_layer) pooler = std::make_unique<BertPooler>(*this, "pooler", c);
}

void BertModel::check_positions(int64_t tokens) const {
  // Tensors without data cannot show that an index counted from ids is out of range, so recorded rows may exceed it.
  if (config.padding_position && tape().dialect.recorder) return;
  const int64_t needed = tokens + (config.padding_position ? *config.padding_position + 1 : 0);
  require_positions("bert", needed, "max_position_embeddings", config.max_position_embeddings);
}

BertModel::Outputs BertModel::operator()(const Tensor& input_ids) {
  Forward here(*this);
  check_positions(input_ids.size(1));
  const Tensor embedding_output = embeddings(input_ids);  // (B, T, C)
  const MaskArgs args{input_ids.size(0), input_ids.size(1), input_ids.size(1), embedding_output.dtype(), {}, {}};
  const Tensor mask = config.is_decoder ? create_causal_mask(build(), args) : create_bidirectional_mask(build(), args);
  Outputs out;
  out.last_hidden_state = encoder(embedding_output, mask);  // (B, T, C)
  if (pooler) out.pooler_output = (*pooler)(out.last_hidden_state);
  return out;
}

Tensor pair_loss(const Tensor& token_scores, const Tensor& pair_scores, const Batch& batch) {
  const Tensor token_loss = flat_cross_entropy(token_scores, batch.labels, false);
  const Tensor loss = flat_cross_entropy(pair_scores, batch.pair_labels, false);
  return add(token_loss, loss);
}

BertDecoder::BertDecoder(Module& parent, std::string_view name, const BertConfig& c, const Tensor& embedding, const Tensor& owner_bias)
    : Module(parent, name),
      weight(c.tie_word_embeddings ? tied("weight", embedding) : parameter("weight", {c.vocab_size, c.embedding_size})),
      bias(c.tie_word_embeddings ? tied("bias", owner_bias) : parameter("bias", {c.vocab_size})) {}

Tensor BertDecoder::operator()(const Tensor& x) const {
  Forward here(*this);
  return linear(x, weight, bias);
}

}  // namespace plimsoll
