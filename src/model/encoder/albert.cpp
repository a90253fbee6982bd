// transformers.models.albert: AlbertForMaskedLM, AlbertForPreTraining and AlbertForSequenceClassification. Layers of a group are
// one set of weights.
#include "model/family.h"
#include "nn/bert_heads.h"
#include "nn/masking.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

struct AlbertConfig : BertConfig {
  explicit AlbertConfig(const Config& c, const Build& build)
      : BertConfig(c, {.vocab_size = 30000,
                       .hidden_size = 4096,
                       .num_attention_heads = 64,
                       .intermediate_size = 16384,
                       .embedding_size = 128,
                       .hidden_act = "gelu_new",
                       .dropout = 0.0}),
        num_hidden_groups(c.size({"num_hidden_groups"}, 1)),
        inner_group_num(c.size({"inner_group_num"}, 1)) {
    classifier_dropout = c.number({"classifier_dropout_prob"}, 0.1);
    if (build.checkpointing.on() && !build.checkpointing.names_modules())
      throw Error("[albert] has no gradient checkpointing in transformers", "switch checkpointing off");
    if (num_hidden_groups > num_hidden_layers)
      throw Error("[albert] num_hidden_groups " + std::to_string(num_hidden_groups) + " are more than num_hidden_layers " +
                      std::to_string(num_hidden_layers),
                  "give each group a layer");
  }
  int64_t num_hidden_groups, inner_group_num;
};

struct AlbertAttention : Module {
  AlbertAttention(Module& parent, std::string_view name, const AlbertConfig& c) : Module(parent, name), config(c) {}

  Tensor operator()(const Tensor& x, const Tensor& mask, Tensor* weights) const {
    Forward here(*this);
    const Dims heads{x.size(0), x.size(1), -1, config.hidden_size / config.num_attention_heads};
    const Tensor q = transpose(view(query(x), heads), 1, 2);  // (B, H, T, D)
    const Tensor k = transpose(view(key(x), heads), 1, 2);
    const Tensor v = transpose(view(value(x), heads), 1, 2);
    AttentionCall call;
    call.mask = mask;
    call.dropout = config.attention_probs_dropout_prob;
    call.causal = false;
    call.has_kv_groups = false;
    call.softmax_fp32 = false;
    call.cast_weights = false;
    Tensor out = attention(build(), q, k, v, call, weights);     // (B, T, H, D)
    out = contiguous(reshape(out, {x.size(0), x.size(1), -1}));  // (B, T, C)
    out = dense(out);
    out = output_dropout(out);
    out = norm(add(x, out));
    return out;
  }

  const AlbertConfig& config;
  Dropout output_dropout{*this, "output_dropout", config.hidden_dropout_prob};
  Linear query{*this, "query", config.hidden_size, config.hidden_size};
  Linear key{*this, "key", config.hidden_size, config.hidden_size};
  Linear value{*this, "value", config.hidden_size, config.hidden_size};
  Linear dense{*this, "dense", config.hidden_size, config.hidden_size};
  LayerNorm norm{*this, "LayerNorm", config.hidden_size};
};

struct AlbertLayer : Module {
  AlbertLayer(Module& parent, std::string_view name, const AlbertConfig& c) : Module(parent, name), config(c) {}

  Tensor operator()(const Tensor& x, const Tensor& mask) const {
    Forward here(*this);
    Tensor weights;                                                               // eager attention's weights live until the layer returns
    const Tensor attention_output = run_attention(attention, x, &weights, mask);  // (B, T, C)
    auto chunk = [this](const Tensor& piece) { return ff_chunk(piece); };
    const Tensor output = apply_chunking_to_forward(chunk, config.chunk_size_feed_forward, attention_output);
    return full_layer_layer_norm(add(output, attention_output));
  }

  Tensor ff_chunk(const Tensor& x) const {
    Tensor output = run_part(ffn, x);  // (B, T, F)
    output = activation(config.hidden_act, output);
    output = ffn_output(output);  // (B, T, C)
    return output;
  }

  const AlbertConfig& config;
  LayerNorm full_layer_layer_norm{*this, "full_layer_layer_norm", config.hidden_size};
  AlbertAttention attention{*this, "attention", config};
  Linear ffn{*this, "ffn", config.hidden_size, config.intermediate_size};
  Linear ffn_output{*this, "ffn_output", config.intermediate_size, config.hidden_size};
};

// A module that is no block for checkpoints, but may have hooks.
template <class Run>
Tensor call(const Module& module, const Run& run, const Tensor& x) {
  if (!is_wrapped(module)) return run(x);
  return call_with_hooks(module, [&run](const Tensors& in) -> Tensors { return {run(in[0])}; }, {x})[0];
}

struct AlbertLayerGroup : Module {
  AlbertLayerGroup(Module& parent, std::string_view name, const AlbertConfig& c) : Module(parent, name) {
    for (int64_t i = 0; i < c.inner_group_num; ++i) albert_layers.add(c);
  }

  Tensor operator()(const Tensor& x, const Tensor& mask) {
    Tensor hidden = x;  // (B, T, C)
    for (const AlbertLayer& layer : albert_layers)
      hidden = call(
          layer, [&layer, mask](const Tensor& h) { return layer(h, mask); }, hidden);
    return hidden;
  }

  ModuleList<AlbertLayer> albert_layers{*this, "albert_layers"};
};

struct AlbertTransformer : Module {
  AlbertTransformer(Module& parent, std::string_view name, const AlbertConfig& c) : Module(parent, name), config(c) {
    for (int64_t i = 0; i < c.num_hidden_groups; ++i) albert_layer_groups.add(c);
  }

  // int(i / (layers / groups)), in floating point as Python does it
  size_t group_of(int64_t layer) const {
    return static_cast<size_t>(static_cast<double>(layer) /
                               (static_cast<double>(config.num_hidden_layers) / static_cast<double>(config.num_hidden_groups)));
  }

  Tensor operator()(const Tensor& x, const Tensor& mask) {
    Forward here(*this);
    Tensor hidden = embedding_hidden_mapping_in(x);  // (B, T, C)
    for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
      AlbertLayerGroup& group = albert_layer_groups[group_of(i)];
      hidden = call(
          group, [&group, mask](const Tensor& h) { return group(h, mask); }, hidden);
    }
    return hidden;
  }

  const AlbertConfig& config;
  Linear embedding_hidden_mapping_in{*this, "embedding_hidden_mapping_in", config.embedding_size, config.hidden_size};
  ModuleList<AlbertLayerGroup> albert_layer_groups{*this, "albert_layer_groups"};
};

struct AlbertModel : Module {
  AlbertModel(Module& parent, std::string_view name, const AlbertConfig& c, bool add_pooling_layer) : Module(parent, name), config(c) {
    if (add_pooling_layer) pooler = std::make_unique<Linear>(*this, "pooler", c.hidden_size, c.hidden_size);
  }

  struct Outputs {
    Tensor last_hidden_state;  // (B, T, C)
    Tensor pooler_output;      // (B, C), undefined without a pooler
  };

  Outputs operator()(const Tensor& input_ids) {
    Forward here(*this);
    require_positions("albert", input_ids.size(1), "max_position_embeddings", config.max_position_embeddings);
    const Tensor embedding_output = embeddings(input_ids);  // (B, T, E)
    const MaskArgs args{input_ids.size(0), input_ids.size(1), input_ids.size(1), embedding_output.dtype(), {}, {}};
    const Tensor mask = create_bidirectional_mask(build(), args);
    Outputs out;
    out.last_hidden_state = encoder(embedding_output, mask);  // (B, T, C)
    if (pooler) {
      const Tensor pooled = (*pooler)(select(out.last_hidden_state, 1, 0));
      out.pooler_output = tanh(pooled);
    }
    return out;
  }

  const AlbertConfig& config;
  BertEmbeddings embeddings{*this, "embeddings", config};
  AlbertTransformer encoder{*this, "encoder", config};
  std::unique_ptr<Linear> pooler;
};

struct AlbertMLMHead : Module {
  AlbertMLMHead(Module& parent, std::string_view name, const AlbertConfig& c, const Tensor& embedding)
      : Module(parent, name), config(c), bias(parameter("bias", {c.vocab_size})), decoder(*this, "decoder", c, embedding, bias) {}

  Tensor operator()(const Tensor& x) const {
    Forward here(*this);
    Tensor hidden = dense(x);  // (B, T, E)
    hidden = activation(config.hidden_act, hidden);
    hidden = norm(hidden);
    hidden = decoder(hidden);  // (B, T, V)
    return hidden;
  }

  const AlbertConfig& config;
  Tensor bias;  // the decoder's own bias when tied; without a gradient when not
  LayerNorm norm{*this, "LayerNorm", config.embedding_size};
  Linear dense{*this, "dense", config.hidden_size, config.embedding_size};
  BertDecoder decoder;
};

struct AlbertForMaskedLM : Model {
  AlbertForMaskedLM(Build& build, const Config& c) : Model(build), config(c, build) {}

  Output forward(const Batch& batch) override {
    const AlbertModel::Outputs outputs = albert(batch.input_ids);
    const Tensor prediction_scores = predictions(outputs.last_hidden_state);  // (B, T, V)
    return {flat_cross_entropy(prediction_scores, batch.labels, false), {prediction_scores}};
  }

  AlbertConfig config;
  AlbertModel albert{*this, "albert", config, false};
  AlbertMLMHead predictions{*this, "predictions", config, albert.embeddings.word_embeddings.weight};
};

struct AlbertSOPHead : Module {
  AlbertSOPHead(Module& parent, std::string_view name, const AlbertConfig& c) : Module(parent, name), config(c) {}

  Tensor operator()(const Tensor& pooled) const {
    Forward here(*this);
    const Tensor dropped = dropout(pooled);  // (B, C)
    return classifier(dropped);              // (B, 2)
  }

  const AlbertConfig& config;
  Dropout dropout{*this, "dropout", config.classifier_dropout};
  Linear classifier{*this, "classifier", config.hidden_size, 2};
};

// Masked tokens, and which sentence came first.
struct AlbertForPreTraining : Model {
  AlbertForPreTraining(Build& build, const Config& c) : Model(build), config(c, build) {
    if (const int64_t labels = Classification(c).num_labels; labels != 2)
      throw Error("[albert] num_labels " + std::to_string(labels) + ": sentences have two orders", "leave num_labels out");
  }

  Output forward(const Batch& batch) override {
    const AlbertModel::Outputs outputs = albert(batch.input_ids);
    const Tensor prediction_scores = predictions(outputs.last_hidden_state);  // (B, T, V)
    const Tensor sop_scores = sop_classifier(outputs.pooler_output);          // (B, 2)
    return {pair_loss(prediction_scores, sop_scores, batch), {prediction_scores, sop_scores}};
  }

  AlbertConfig config;
  AlbertModel albert{*this, "albert", config, true};
  AlbertMLMHead predictions{*this, "predictions", config, albert.embeddings.word_embeddings.weight};
  AlbertSOPHead sop_classifier{*this, "sop_classifier", config};
};

std::unique_ptr<Model> make_albert(Build& build, const Config& config) { return std::make_unique<AlbertForMaskedLM>(build, config); }

std::unique_ptr<Model> make_albert_pretraining(Build& build, const Config& config) {
  return std::make_unique<AlbertForPreTraining>(build, config);
}

std::unique_ptr<Model> make_albert_classifier(Build& build, const Config& config) {
  return std::make_unique<PooledClassifier<AlbertConfig, AlbertModel>>(build, config, AlbertConfig(config, build), "albert");
}

}  // namespace

const Family& albert_family() {
  static const Family kFamily{
      .name = "albert",
      .models = {{"albert", {"AlbertForMaskedLM"}, InputKind::lm, 512, make_albert},
                 {"albert-classifier", {"AlbertForSequenceClassification"}, InputKind::cls, 512, make_albert_classifier},
                 {"albert-pretraining", {"AlbertForPreTraining"}, InputKind::pair, 512, make_albert_pretraining}},
      .presets = {{"albert-base-v2", R"({"hidden_size":768,"num_attention_heads":12,"intermediate_size":3072})", 512},
                  {"albert-large-v2", R"({"hidden_size":1024,"num_hidden_layers":24,"num_attention_heads":16,"intermediate_size":4096})",
                   512},
                  {"albert-xlarge-v2", R"({"hidden_size":2048,"num_hidden_layers":24,"num_attention_heads":16,"intermediate_size":8192})",
                   512},
                  {"albert-xxlarge-v2", R"({})", 512}},
  };
  return kFamily;
}

}  // namespace plimsoll
