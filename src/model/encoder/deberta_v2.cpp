// transformers.models.deberta_v2: DebertaV2ForMaskedLM and DebertaV2ForSequenceClassification, of DeBERTa v2 and v3. Attention is always
// eager: what tokens say of each other is added to what they say of their distance, and the other way round.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "model/family.h"
#include "nn/classification.h"
#include "nn/layers.h"
#include "nn/model.h"
#include "nn/transformer.h"
#include "ops/conv.h"
#include "ops/index.h"
#include "ops/loss.h"
#include "ops/matmul.h"
#include "ops/pointwise.h"
#include "ops/repeat.h"
#include "ops/reshape.h"
#include "util/text.h"

namespace plimsoll {

namespace {

// "p2c|c2p" or ["p2c", "c2p"]
std::vector<std::string> names_of(const Config& c, const char* key) {
  const nlohmann::json* value = c.find({key});
  std::vector<std::string> names;
  if (!value) return names;
  if (!value->is_array()) {
    for (std::string name : split_at(lower(c.text({key}, "")), '|')) {
      std::erase(name, ' ');
      names.push_back(name);
    }
    return names;
  }
  for (const nlohmann::json& name : *value) {
    if (!name.is_string())
      throw Error(fmt::format("[{}] {} is {}, expected a list of names", c.source(), key, dump(*value).substr(0, 80)),
                  "e.g. [\"p2c\", \"c2p\"]");
    names.push_back(name.get<std::string>());
  }
  return names;
}

struct DebertaConfig {
  explicit DebertaConfig(const Config& c)
      : vocab_size(c.size({"vocab_size"}, 128100)),
        hidden_size(c.size({"hidden_size"}, 1536)),
        embedding_size(c.size({"embedding_size"}, hidden_size)),
        num_hidden_layers(c.size({"num_hidden_layers"}, 24)),
        num_attention_heads(c.size({"num_attention_heads"}, 24)),
        intermediate_size(c.size({"intermediate_size"}, 6144)),
        max_position_embeddings(c.size({"max_position_embeddings"}, 512)),
        type_vocab_size(c.integer({"type_vocab_size"}, 0)),
        pooler_hidden_size(c.size({"pooler_hidden_size"}, hidden_size)),
        conv_kernel_size(c.integer({"conv_kernel_size"}, 0)),
        conv_groups(c.size({"conv_groups"}, 1)),
        hidden_act(c.text({"hidden_act"}, "gelu")),
        conv_act(c.text({"conv_act"}, "tanh")),
        pooler_hidden_act(c.text({"pooler_hidden_act"}, "gelu")),
        hidden_dropout_prob(c.number({"hidden_dropout_prob"}, 0.1)),
        attention_probs_dropout_prob(c.number({"attention_probs_dropout_prob"}, 0.1)),
        pooler_dropout(c.number({"pooler_dropout"}, 0.0)),
        cls_dropout(c.number({"cls_dropout"}, hidden_dropout_prob)),
        relative_attention(c.flag({"relative_attention"}, false)),
        position_biased_input(c.flag({"position_biased_input"}, true)),
        share_att_key(c.flag({"share_att_key"}, false)),
        legacy(c.flag({"legacy"}, true)),
        tie_word_embeddings(c.flag({"tie_word_embeddings"}, true)) {
    reject_captured_outputs(c);
    c.require_divides("num_attention_heads", num_attention_heads, "hidden_size", hidden_size);
    if (c.find({"attention_head_size"}) && c.size({"attention_head_size"}, 1) != head_dim())
      throw Error(fmt::format("[{}] attention_head_size other than hidden_size / num_attention_heads is not simulated", c.source()),
                  "leave it out");
    const auto has = [](const std::vector<std::string>& names, const char* name) {
      return std::find(names.begin(), names.end(), name) != names.end();
    };
    const std::vector<std::string> attends = names_of(c, "pos_att_type");
    for (const std::string& name : attends)
      if (name != "c2p" && name != "p2c" && name != "none" && !name.empty())
        throw Error(fmt::format("[{}] pos_att_type '{}' is not known", c.source(), name), "known: c2p, p2c");
    c2p = has(attends, "c2p");
    p2c = has(attends, "p2c");
    norm_rel_ebd = has(names_of(c, "norm_rel_ebd"), "layer_norm");
    position_buckets = c.integer({"position_buckets"}, -1);
    const int64_t span = c.integer({"max_relative_positions"}, -1);
    max_relative_positions = span < 1 ? max_position_embeddings : span;
    if (relative_attention && !c2p && !p2c)
      throw Error(fmt::format("[{}] relative_attention without pos_att_type is not simulated", c.source()), "give pos_att_type: p2c|c2p");
  }

  int64_t head_dim() const { return hidden_size / num_attention_heads; }
  int64_t span() const { return position_buckets > 0 ? position_buckets : max_relative_positions; }  // distances to each side

  int64_t vocab_size, hidden_size, embedding_size, num_hidden_layers, num_attention_heads, intermediate_size, max_position_embeddings;
  int64_t type_vocab_size, pooler_hidden_size, conv_kernel_size, conv_groups, position_buckets = -1, max_relative_positions = -1;
  std::string hidden_act, conv_act, pooler_hidden_act;
  double hidden_dropout_prob, attention_probs_dropout_prob, pooler_dropout, cls_dropout;
  bool relative_attention, position_biased_input, share_att_key, legacy, tie_word_embeddings;
  bool c2p = false, p2c = false, norm_rel_ebd = false;
};

struct DebertaEmbeddings : Module {
  DebertaEmbeddings(Module& parent, std::string_view name, const DebertaConfig& c) : Module(parent, name), config(c) {
    if (c.position_biased_input)
      position_embeddings = std::make_unique<Embedding>(*this, "position_embeddings", c.max_position_embeddings, c.embedding_size);
    if (c.type_vocab_size > 0)
      token_type_embeddings = std::make_unique<Embedding>(*this, "token_type_embeddings", c.type_vocab_size, c.embedding_size);
    if (c.embedding_size != c.hidden_size)
      embed_proj = std::make_unique<Linear>(*this, "embed_proj", c.embedding_size, c.hidden_size, false);
    norm = std::make_unique<LayerNorm>(*this, "LayerNorm", c.hidden_size);
    dropout = std::make_unique<Dropout>(*this, "dropout", c.hidden_dropout_prob);
    position_ids = buffer("position_ids", {1, c.max_position_embeddings}, DType::int64);
  }

  // mask: (B, T), of any type
  Tensor operator()(const Tensor& input_ids, const Tensor& token_type_ids, const Tensor& mask) const {
    Forward here(*this);
    require_positions("deberta-v2", input_ids.size(1), "max_position_embeddings", config.max_position_embeddings);
    const Tensor positions = getitem(position_ids, 1, 0, input_ids.size(1));  // (1, T)
    const Tensor inputs_embeds = word_embeddings(input_ids);                  // (B, T, E)
    const Tensor position_embeds =
        position_embeddings ? (*position_embeddings)(positions) : nondiff("zeros_like", inputs_embeds, inputs_embeds.dtype());
    Tensor embeddings = inputs_embeds, type_embeds;
    if (position_embeddings) embeddings = add(embeddings, position_embeds);
    if (token_type_embeddings) {
      type_embeds = (*token_type_embeddings)(token_type_ids);
      embeddings = add(embeddings, type_embeds);
    }
    if (embed_proj) embeddings = (*embed_proj)(embeddings);
    embeddings = (*norm)(embeddings);  // (B, T, C)
    const Tensor seen = to(unsqueeze(mask, 2), embeddings.dtype());
    embeddings = mul(embeddings, seen);
    return (*dropout)(embeddings);
  }

  const DebertaConfig& config;
  Embedding word_embeddings{*this, "word_embeddings", config.vocab_size, config.embedding_size};
  std::unique_ptr<Embedding> position_embeddings, token_type_embeddings;
  std::unique_ptr<Linear> embed_proj;
  std::unique_ptr<LayerNorm> norm;
  std::unique_ptr<Dropout> dropout;
  Tensor position_ids;
};

// Distances in buckets: exact for near tokens, logarithmic for far ones. (T, T) fp32
Tensor make_log_bucket_position(const Tensor& relative_pos) {
  const DType i64 = DType::int64, f32 = DType::float32;
  const Tensor sign = nondiff("sign", relative_pos, i64);
  Tensor abs_pos;
  {
    Tensor near = compare_scalar("lt", relative_pos);
    near = compare("bitwise_and", near, compare_scalar("gt", relative_pos));
    const Tensor mid = filled(relative_pos.tape(), "_to_copy", {}, i64);
    const Tensor distance = nondiff("abs", relative_pos, i64);
    abs_pos = where(near, mid, distance);
  }
  Tensor log_pos = nondiff("div", abs_pos, f32);
  for (const char* op : {"log", "div", "mul", "ceil", "add"}) log_pos = nondiff(op, log_pos, f32);
  const Tensor is_near = compare_scalar("le", abs_pos);
  const Tensor exact = nondiff("_to_copy", relative_pos, f32);
  const Tensor far = nondiff("mul", log_pos, f32);
  return where(is_near, exact, far);
}

// (1, T, T) int64
Tensor build_relative_position(const DebertaConfig& c, Tape& tape, int64_t tokens) {
  const Tensor q_ids = arange(tape, tokens), k_ids = arange(tape, tokens);
  Tensor rel_pos_ids = sub(unsqueeze(q_ids, 1), unsqueeze(k_ids, 0));
  if (c.position_buckets > 0) {
    rel_pos_ids = make_log_bucket_position(rel_pos_ids);
    rel_pos_ids = nondiff("_to_copy", rel_pos_ids, DType::int64);
  }
  return unsqueeze(rel_pos_ids, 0);
}

struct DisentangledSelfAttention : Module {
  DisentangledSelfAttention(Module& parent, std::string_view name, const DebertaConfig& c) : Module(parent, name), config(c) {
    if (!c.relative_attention || c.share_att_key) return;
    if (c.c2p) pos_key_proj = std::make_unique<Linear>(*this, "pos_key_proj", c.hidden_size, c.hidden_size);
    if (c.p2c) pos_query_proj = std::make_unique<Linear>(*this, "pos_query_proj", c.hidden_size, c.hidden_size);
  }

  // (B, T, C) -> (B H, T, D)
  Tensor transpose_for_scores(const Tensor& x) const {
    const Tensor heads = permute(view(x, {x.size(0), x.size(1), config.num_attention_heads, -1}), {0, 2, 1, 3});
    return view(contiguous(heads), {-1, x.size(1), config.head_dim()});
  }

  // relative_pos: (1, T, T), rel_embeddings: (2 span, C)
  Tensor operator()(const Tensor& x, const Tensor& mask, const Tensor& relative_pos, const Tensor& rel_embeddings, Tensor*) const {
    Forward here(*this);
    const int64_t heads = config.num_attention_heads;
    const Tensor query_layer = transpose_for_scores(query_proj(x)), key_layer = transpose_for_scores(key_proj(x));
    const Tensor value_layer = transpose_for_scores(value_proj(x));
    Tensor attention_scores, rel_att, dropped;
    {
      const Tensor scaled = div_scalar(transpose(key_layer, -1, -2));
      attention_scores = bmm(query_layer, scaled);  // (B H, T, T)
    }
    if (config.relative_attention) {
      dropped = dropout(rel_embeddings, config.hidden_dropout_prob);
      rel_att = disentangled_attention_bias(query_layer, key_layer, relative_pos, dropped);
      attention_scores = add(attention_scores, rel_att);
    }
    attention_scores = view(attention_scores, {-1, heads, x.size(1), x.size(1)});  // (B, H, T, T)
    const Tensor seen = nondiff("_to_copy", mask, DType::bool_);                   // (B, 1, T, T)
    attention_scores = masked_fill(attention_scores, nondiff("bitwise_not", seen, DType::bool_));
    Tensor attention_probs = softmax(attention_scores);
    attention_probs = dropout(attention_probs, config.attention_probs_dropout_prob);
    Tensor context = bmm(view(attention_probs, {-1, x.size(1), x.size(1)}), value_layer);                   // (B H, T, D)
    context = contiguous(permute(view(context, {-1, heads, x.size(1), config.head_dim()}), {0, 2, 1, 3}));  // (B, T, H, D)
    return view(context, {x.size(0), x.size(1), -1});
  }

  Tensor positions_by(const Linear& proj, const Tensor& rel_embeddings, int64_t batch) const {
    return repeat(transpose_for_scores(proj(rel_embeddings)), batch);  // (B H, 2 span, D)
  }

  Tensor disentangled_attention_bias(const Tensor& query_layer, const Tensor& key_layer, const Tensor& relative_pos,
                                     const Tensor& rel_embeddings) const {
    const int64_t batch = query_layer.size(0) / config.num_attention_heads, tokens = query_layer.size(1);
    const Tensor rel = unsqueeze(rel_embeddings, 0);  // (1, 2 span, C)
    const Dims everywhere{query_layer.size(0), tokens, tokens};
    Tensor pos_query_layer, pos_key_layer;
    if (config.share_att_key) {
      pos_query_layer = positions_by(query_proj, rel, batch);
      pos_key_layer = positions_by(key_proj, rel, batch);
    } else {
      if (config.c2p) pos_key_layer = positions_by(*pos_key_proj, rel, batch);
      if (config.p2c) pos_query_layer = positions_by(*pos_query_proj, rel, batch);
    }
    Tensor score, c2p_att, c2p_pos, p2c_att, p2c_pos;
    if (config.c2p) {
      c2p_att = bmm(query_layer, transpose(pos_key_layer, -1, -2));  // (B H, T, 2 span)
      c2p_pos = nondiff("add", relative_pos, DType::int64);
      c2p_pos = nondiff("clamp", c2p_pos, DType::int64);
      c2p_att = gather(c2p_att, -1, expand(c2p_pos, everywhere));  // (B H, T, T)
      score = div_scalar(c2p_att);
      score = add_scalar(score);
    }
    if (config.p2c) {
      for (const char* op : {"neg", "add", "clamp"}) p2c_pos = nondiff(op, p2c_pos ? p2c_pos : relative_pos, DType::int64);
      p2c_att = bmm(key_layer, transpose(pos_query_layer, -1, -2));
      p2c_att = transpose(gather(p2c_att, -1, expand(p2c_pos, everywhere)), -1, -2);
      const Tensor scaled = div_scalar(p2c_att);
      score = score ? add_(score, scaled) : add_scalar(scaled);
    }
    return score;
  }

  const DebertaConfig& config;
  Linear query_proj{*this, "query_proj", config.hidden_size, config.hidden_size};
  Linear key_proj{*this, "key_proj", config.hidden_size, config.hidden_size};
  Linear value_proj{*this, "value_proj", config.hidden_size, config.hidden_size};
  std::unique_ptr<Linear> pos_key_proj, pos_query_proj;
};

// DebertaV2SelfOutput and DebertaV2Output
struct DebertaOutput : Module {
  DebertaOutput(Module& parent, std::string_view name, int64_t in, const DebertaConfig& c)
      : Module(parent, name),
        dense(*this, "dense", in, c.hidden_size),
        norm(*this, "LayerNorm", c.hidden_size),
        dropout(*this, "dropout", c.hidden_dropout_prob) {}

  Tensor operator()(const Tensor& x, const Tensor& residual) const {
    Forward here(*this);
    Tensor hidden = dense(x);  // (B, T, C)
    hidden = dropout(hidden);
    hidden = norm(add(hidden, residual));
    return hidden;
  }

  Linear dense;
  LayerNorm norm;
  Dropout dropout;
};

struct DebertaAttention : Module {
  DebertaAttention(Module& parent, std::string_view name, const DebertaConfig& c) : Module(parent, name), config(c) {}

  Tensor operator()(const Tensor& x, const Tensor& mask, const Tensor& relative_pos, const Tensor& rel_embeddings, Tensor* weights) const {
    Forward here(*this);
    const Tensor self_output = self(x, mask, relative_pos, rel_embeddings, weights);
    return output(self_output, x);
  }

  const DebertaConfig& config;
  DisentangledSelfAttention self{*this, "self", config};
  DebertaOutput output{*this, "output", config.hidden_size, config};
};

struct DebertaIntermediate : Module {
  DebertaIntermediate(Module& parent, std::string_view name, const DebertaConfig& c)
      : Module(parent, name), act(c.hidden_act), dense(*this, "dense", c.hidden_size, c.intermediate_size) {}
  Tensor operator()(const Tensor& x) const {
    Forward here(*this);
    const Tensor hidden = dense(x);  // (B, T, F)
    return activation(act, hidden);
  }
  std::string act;
  Linear dense;
};

struct DebertaLayer : Module {
  DebertaLayer(Module& parent, std::string_view name, const DebertaConfig& c) : Module(parent, name), config(c) {}

  Tensor operator()(const Tensor& x, const Tensor& mask, const Tensor& relative_pos, const Tensor& rel_embeddings) const {
    Forward here(*this);
    Tensor weights;
    const Tensor attention_output = run_attention(attention, x, &weights, mask, relative_pos, rel_embeddings);  // (B, T, C)
    const Tensor intermediate_output = run_part(intermediate, attention_output);                                // (B, T, F)
    return output(intermediate_output, attention_output);
  }

  const DebertaConfig& config;
  DebertaAttention attention{*this, "attention", config};
  DebertaIntermediate intermediate{*this, "intermediate", config};
  DebertaOutput output{*this, "output", config.intermediate_size, config};
};

// A convolution over neighbouring tokens beside the first layer.
struct DebertaConvLayer : Module {
  DebertaConvLayer(Module& parent, std::string_view name, const DebertaConfig& c) : Module(parent, name), config(c) {
    if (c.conv_kernel_size % 2 == 0)
      throw Error(fmt::format("[deberta-v2] conv_kernel_size {} would shorten the sequence", c.conv_kernel_size), "use an odd number");
  }

  struct Conv : Module {
    Conv(Module& parent, std::string_view name, const DebertaConfig& c)
        : Module(parent, name),
          weight(parameter("weight", {c.hidden_size, c.hidden_size / c.conv_groups, c.conv_kernel_size})),
          bias(parameter("bias", {c.hidden_size})) {}
    Tensor weight, bias;
  };

  Tensor operator()(const Tensor& hidden, const Tensor& residual, const Tensor& input_mask) const {
    Forward here(*this);
    Tensor out = convolve(contiguous(permute(hidden, {0, 2, 1})));  // (B, C, T)
    out = contiguous(permute(out, {0, 2, 1}));                      // (B, T, C)
    const Tensor rmask = nondiff("_to_copy", nondiff("rsub", input_mask, input_mask.dtype()), DType::bool_);
    out = mul_(out, expand(unsqueeze(rmask, -1), out.sizes()));  // masked_fill_, which keeps the mask
    out = activation(config.conv_act, dropout(out, config.hidden_dropout_prob));
    const Tensor layer_norm_input = add(residual, out);
    const Tensor output = to(norm(layer_norm_input), layer_norm_input.dtype());
    const Tensor seen = to(unsqueeze(input_mask, 2), output.dtype());
    return mul(output, seen);
  }

  Tensor convolve(const Tensor& x) const {
    Forward here(conv);
    return conv1d(x, conv.weight, conv.bias, {.padding = (config.conv_kernel_size - 1) / 2, .groups = config.conv_groups});
  }

  const DebertaConfig& config;
  Conv conv{*this, "conv", config};
  LayerNorm norm{*this, "LayerNorm", config.hidden_size};
};

struct DebertaEncoder : Module {
  DebertaEncoder(Module& parent, std::string_view name, const DebertaConfig& c) : Module(parent, name), config(c) {
    for (int64_t i = 0; i < c.num_hidden_layers; ++i) layer.add(c);
    if (c.relative_attention)
      rel_embeddings = std::make_unique<Embedding>(*this, "rel_embeddings", checked_mul(2, c.span()), c.hidden_size);
    if (c.norm_rel_ebd) norm = std::make_unique<LayerNorm>(*this, "LayerNorm", c.hidden_size);
    if (c.conv_kernel_size > 0) conv = std::make_unique<DebertaConvLayer>(*this, "conv", c);
  }

  // `states` takes all layers', which the model holds until it returns.
  Tensor operator()(const Tensor& hidden, const Tensor& input_mask, Tensors& states) {
    Forward here(*this);
    const Tensor extended = unsqueeze(unsqueeze(input_mask, 1), 2);           // (B, 1, 1, T)
    const Tensor mask = mul(extended, unsqueeze(squeeze(extended, -2), -1));  // (B, 1, T, T)
    Tensor relative_pos, rel;
    if (config.relative_attention) {
      relative_pos = build_relative_position(config, tape(), hidden.size(1));  // (1, T, T)
      rel = rel_embeddings->weight;
      if (norm) rel = (*norm)(rel);  // (2 span, C)
    }
    states.push_back(hidden);
    Tensor next_kv = hidden;
    for (size_t i = 0; i < layer.size(); ++i) {
      const auto run = [&block = layer[i], mask, relative_pos, rel](const Tensor& x) { return block(x, mask, relative_pos, rel); };
      Tensor output_states = run_block(layer[i], run, next_kv);
      if (i == 0 && conv) output_states = (*conv)(hidden, output_states, input_mask);
      states.push_back(output_states);
      next_kv = output_states;
    }
    return next_kv;
  }

  const DebertaConfig& config;
  ModuleList<DebertaLayer> layer{*this, "layer"};
  std::unique_ptr<Embedding> rel_embeddings;
  std::unique_ptr<LayerNorm> norm;
  std::unique_ptr<DebertaConvLayer> conv;
};

struct DebertaModel : Module {
  DebertaModel(Module& parent, std::string_view name, const DebertaConfig& c) : Module(parent, name), config(c) {}

  Tensor operator()(const Tensor& input_ids, const Tensor& given_mask) {
    Forward here(*this);
    Tensor mask = given_mask;  // (B, T)
    if (!mask) {
      look_for_padding(input_ids);
      mask = filled(tape(), "ones", input_ids.sizes(), DType::float32);
    }
    const Tensor token_type_ids = filled(tape(), "zeros", input_ids.sizes(), DType::int64);
    const Tensor embedding_output = embeddings(input_ids, token_type_ids, mask);  // (B, T, C)
    Tensors states;
    return encoder(embedding_output, mask, states);
  }

  // warn_if_padding_and_no_attention_mask: the first and the last token of each sample
  void look_for_padding(const Tensor& input_ids) const {
    const Tensor places = filled(tape(), "_to_copy", {2}, DType::int64);
    const Tensor ends = filled(tape(), "index", {input_ids.size(0), 2}, DType::int64);
    const Tensor is_padding = compare_scalar("eq", ends);
    filled(tape(), "any", {}, DType::bool_);
  }

  const DebertaConfig& config;
  DebertaEmbeddings embeddings{*this, "embeddings", config};
  DebertaEncoder encoder{*this, "encoder", config};
};

struct DebertaHeadTransform : Module {
  DebertaHeadTransform(Module& parent, std::string_view name, const DebertaConfig& c)
      : Module(parent, name), config(c), act(c.hidden_act) {}
  Tensor operator()(const Tensor& x) const {
    Forward here(*this);
    Tensor hidden = dense(x);  // (B, T, E)
    hidden = activation(act, hidden);
    hidden = norm(hidden);
    return hidden;
  }
  const DebertaConfig& config;
  std::string act;
  Linear dense{*this, "dense", config.hidden_size, config.embedding_size};
  LayerNorm norm{*this, "LayerNorm", config.embedding_size};
};

// LegacyDebertaV2LMPredictionHead: the bias is also the projection's own, unless untied; then nobody reads it.
struct DebertaPredictions : Module {
  DebertaPredictions(Module& parent, std::string_view name, const DebertaConfig& c, const Tensor& embedding)
      : Module(parent, name),
        bias(parameter("bias", {c.vocab_size})),
        transform(*this, "transform", c),
        decoder(*this, c, embedding, bias) {}

  struct Decoder : Module {
    Decoder(Module& parent, const DebertaConfig& c, const Tensor& embedding, const Tensor& shared_bias)
        : Module(parent, "decoder"),
          weight(c.tie_word_embeddings ? tied("weight", embedding) : parameter("weight", {c.vocab_size, c.embedding_size})),
          bias(c.tie_word_embeddings ? tied("bias", shared_bias) : parameter("bias", {c.vocab_size})) {}
    Tensor weight, bias;
  };

  Tensor operator()(const Tensor& x) const {
    Forward here(*this);
    const Tensor hidden = transform(x);  // (B, T, E)
    Forward there(decoder);
    return linear(hidden, decoder.weight, decoder.bias);  // (B, T, V)
  }

  Tensor bias;
  DebertaHeadTransform transform;
  Decoder decoder;
};

struct DebertaMLMHead : Module {
  DebertaMLMHead(Module& parent, std::string_view name, const DebertaConfig& c, const Tensor& embedding)
      : Module(parent, name), predictions(*this, "predictions", c, embedding) {}
  DebertaPredictions predictions;
};

struct DebertaForMaskedLM : Model {
  DebertaForMaskedLM(Build& build, const Config& c) : Model(build), config(c) {
    if (!config.legacy) throw Error(fmt::format("[{}] legacy false is not simulated", c.source()), "leave it out: the default is true");
  }

  Output forward(const Batch& batch) override {
    const Tensor sequence_output = deberta(batch.input_ids, batch.attention_mask);  // (B, T, C)
    const Tensor prediction_scores = cls.predictions(sequence_output);              // (B, T, V)
    return {flat_cross_entropy(prediction_scores, batch.labels, false), {prediction_scores}};
  }

  DebertaConfig config;
  DebertaModel deberta{*this, "deberta", config};
  DebertaMLMHead cls{*this, "cls", config, deberta.embeddings.word_embeddings.weight};
};

struct DebertaContextPooler : Module {
  DebertaContextPooler(Module& parent, std::string_view name, const DebertaConfig& c)
      : Module(parent, name), config(c), act(c.pooler_hidden_act) {}
  Tensor operator()(const Tensor& states) const {
    Forward here(*this);
    const Tensor context_token = dropout(select(states, 1, 0));  // (B, C)
    const Tensor pooled_output = dense(context_token);
    return activation(act, pooled_output);
  }
  const DebertaConfig& config;
  std::string act;
  Linear dense{*this, "dense", config.pooler_hidden_size, config.pooler_hidden_size};
  Dropout dropout{*this, "dropout", config.pooler_dropout};
};

struct DebertaForSequenceClassification : Model {
  DebertaForSequenceClassification(Build& build, const Config& c)
      : Model(build), config(c), classes(c), picks_labels(!c.find({"problem_type"}) && classes.num_labels > 1) {}

  Output forward(const Batch& batch) override {
    const Tensor encoder_layer = deberta(batch.input_ids, batch.attention_mask);  // (B, T, C)
    Tensor pooled_output = pooler(encoder_layer);                                 // (B, C)
    pooled_output = dropout(pooled_output);
    const Tensor logits = classifier(pooled_output);  // (B, labels)
    return {picks_labels ? loss_of_labelled(logits, batch.labels) : classes.loss(logits, batch.labels), {logits}};
  }

  // Samples may have no label; here all have one.
  Tensor loss_of_labelled(const Tensor& logits, const Tensor& labels) const {
    Tensor has_label = compare_scalar("ge", labels);
    const Tensor label_index = filled(tape(), "nonzero", {labels.size(0), 1}, DType::int64);
    has_label.reset();
    const Tensor labelled = gather(logits, 0, expand(label_index, {labels.size(0), logits.size(1)}));
    const Tensor chosen = gather(labels, 0, view(label_index, {-1}));
    return flat_cross_entropy(labelled, chosen, true);
  }

  DebertaConfig config;
  Classification classes;
  bool picks_labels;
  DebertaModel deberta{*this, "deberta", config};
  DebertaContextPooler pooler{*this, "pooler", config};
  Linear classifier{*this, "classifier", config.hidden_size, classes.num_labels};
  Dropout dropout{*this, "dropout", config.cls_dropout};
};

std::unique_ptr<Model> make_deberta_v2(Build& build, const Config& config) { return std::make_unique<DebertaForMaskedLM>(build, config); }

std::unique_ptr<Model> make_deberta_v2_classifier(Build& build, const Config& config) {
  return std::make_unique<DebertaForSequenceClassification>(build, config);
}

}  // namespace

const Family& deberta_v2_family() {
  static const Family kFamily{
      .name = "deberta-v2",
      .models = {{"deberta-v2", {"DebertaV2ForMaskedLM"}, InputKind::lm, 512, make_deberta_v2},
                 {"deberta-v2-classifier", {"DebertaV2ForSequenceClassification"}, InputKind::cls, 512, make_deberta_v2_classifier}},
      .presets =
          {{"deberta-v3-base",
            R"({"hidden_size":768,"num_hidden_layers":12,"num_attention_heads":12,"intermediate_size":3072,"relative_attention":true,"position_buckets":256,"norm_rel_ebd":"layer_norm","share_att_key":true,"pos_att_type":"p2c|c2p","position_biased_input":false})",
            512},
           {"deberta-v3-large",
            R"({"hidden_size":1024,"num_hidden_layers":24,"num_attention_heads":16,"intermediate_size":4096,"relative_attention":true,"position_buckets":256,"norm_rel_ebd":"layer_norm","share_att_key":true,"pos_att_type":"p2c|c2p","position_biased_input":false})",
            512}},
  };
  return kFamily;
}

}  // namespace plimsoll
