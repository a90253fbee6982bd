// transformers.models.electra: ElectraForMaskedLM (the generator), ElectraForPreTraining (the discriminator) and
// ElectraForSequenceClassification.
#include "model/family.h"
#include "nn/bert_heads.h"
#include "nn/masking.h"
#include "ops/loss.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

struct ElectraConfig : BertConfig {
  explicit ElectraConfig(const Config& c)
      : BertConfig(c, {.hidden_size = 256, .num_attention_heads = 4, .intermediate_size = 1024, .embedding_size = 128}) {}
};

struct ElectraModel : Module {
  ElectraModel(Module& parent, std::string_view name, const ElectraConfig& c)
      : Module(parent, name),
        config(c),
        embeddings_project(c.embedding_size == c.hidden_size
                               ? nullptr
                               : std::make_unique<Linear>(*this, "embeddings_project", c.embedding_size, c.hidden_size)) {}

  Tensor operator()(const Tensor& input_ids) {
    Forward here(*this);
    require_positions("electra", input_ids.size(1), "max_position_embeddings", config.max_position_embeddings);
    Tensor embedding_output = embeddings(input_ids);                                     // (B, T, E)
    if (embeddings_project) embedding_output = (*embeddings_project)(embedding_output);  // (B, T, C)
    Tensor mask;
    if (config.is_decoder)
      mask = create_causal_mask(build(), {input_ids.size(0), input_ids.size(1), input_ids.size(1), embedding_output.dtype(), {}, {}});
    return encoder(embedding_output, mask);  // (B, T, C)
  }

  const ElectraConfig& config;
  BertEmbeddings embeddings{*this, "embeddings", config};
  std::unique_ptr<Linear> embeddings_project;
  BertEncoder encoder{*this, "encoder", config};
};

struct ElectraGeneratorPredictions : Module {
  ElectraGeneratorPredictions(Module& parent, std::string_view name, const ElectraConfig& c) : Module(parent, name), config(c) {}

  Tensor operator()(const Tensor& x) const {
    Forward here(*this);
    Tensor hidden = dense(x);  // (B, T, E)
    hidden = gelu(hidden);     // always gelu, whatever hidden_act is
    hidden = norm(hidden);
    return hidden;
  }

  const ElectraConfig& config;
  LayerNorm norm{*this, "LayerNorm", config.embedding_size};
  Linear dense{*this, "dense", config.hidden_size, config.embedding_size};
};

struct ElectraForMaskedLM : Model {
  ElectraForMaskedLM(Build& build, const Config& c) : Model(build), config(c), generator_lm_head(make_head()) {}

  std::unique_ptr<Linear> make_head() {
    if (config.tie_word_embeddings)
      return std::make_unique<Linear>(*this, "generator_lm_head", electra.embeddings.word_embeddings.weight, true);
    return std::make_unique<Linear>(*this, "generator_lm_head", config.embedding_size, config.vocab_size);
  }

  Output forward(const Batch& batch) override {
    const Tensor hidden = electra(batch.input_ids);               // (B, T, C)
    Tensor prediction_scores = generator_predictions(hidden);     // (B, T, E)
    prediction_scores = (*generator_lm_head)(prediction_scores);  // (B, T, V)
    return {flat_cross_entropy(prediction_scores, batch.labels, false), {prediction_scores}};
  }

  ElectraConfig config;
  ElectraModel electra{*this, "electra", config};
  ElectraGeneratorPredictions generator_predictions{*this, "generator_predictions", config};
  std::unique_ptr<Linear> generator_lm_head;
};

struct ElectraDiscriminatorPredictions : Module {
  ElectraDiscriminatorPredictions(Module& parent, std::string_view name, const ElectraConfig& c) : Module(parent, name), config(c) {}

  Tensor operator()(const Tensor& x) const {
    Forward here(*this);
    Tensor hidden = dense(x);  // (B, T, C)
    hidden = activation(config.hidden_act, hidden);
    return squeeze(dense_prediction(hidden), -1);  // (B, T)
  }

  const ElectraConfig& config;
  Linear dense{*this, "dense", config.hidden_size, config.hidden_size};
  Linear dense_prediction{*this, "dense_prediction", config.hidden_size, 1};
};

// Labels say of each token whether it was replaced.
struct ElectraForPreTraining : Model {
  ElectraForPreTraining(Build& build, const Config& c) : Model(build), config(c) {}

  Output forward(const Batch& batch) override {
    const Tensor hidden = electra(batch.input_ids);           // (B, T, C)
    const Tensor logits = discriminator_predictions(hidden);  // (B, T)
    if (!batch.labels) return {{}, {logits}};
    const Tensor seen = view(logits, {-1, hidden.size(1)});
    return {binary_cross_entropy_with_logits(seen, nondiff("_to_copy", batch.labels, DType::float32)), {logits}};
  }

  ElectraConfig config;
  ElectraModel electra{*this, "electra", config};
  ElectraDiscriminatorPredictions discriminator_predictions{*this, "discriminator_predictions", config};
};

struct ElectraForSequenceClassification : Model {
  ElectraForSequenceClassification(Build& build, const Config& c) : Model(build), config(c), classes(c) {}

  Output forward(const Batch& batch) override {
    const Tensor sequence_output = electra(batch.input_ids);  // (B, T, C)
    const Tensor logits = classifier(sequence_output);        // (B, labels)
    return {classes.loss(logits, batch.labels), {logits}};
  }

  ElectraConfig config;
  Classification classes;
  ElectraModel electra{*this, "electra", config};
  FirstTokenHead classifier{*this, "classifier", config, classes.num_labels, gelu};
};

std::unique_ptr<Model> make_electra(Build& build, const Config& config) { return std::make_unique<ElectraForMaskedLM>(build, config); }

std::unique_ptr<Model> make_electra_pretraining(Build& build, const Config& config) {
  return std::make_unique<ElectraForPreTraining>(build, config);
}

std::unique_ptr<Model> make_electra_classifier(Build& build, const Config& config) {
  return std::make_unique<ElectraForSequenceClassification>(build, config);
}

}  // namespace

const Family& electra_family() {
  static const Family kFamily{
      .name = "electra",
      .models = {{"electra", {"ElectraForMaskedLM"}, InputKind::lm, 512, make_electra},
                 {"electra-classifier", {"ElectraForSequenceClassification"}, InputKind::cls, 512, make_electra_classifier},
                 {"electra-pretraining", {"ElectraForPreTraining"}, InputKind::lm, 512, make_electra_pretraining}},
      .presets = {{"electra-small-discriminator", R"({})", 512, "electra-pretraining"},
                  {"electra-base-discriminator",
                   R"({"hidden_size":768,"embedding_size":768,"num_attention_heads":12,"intermediate_size":3072})", 512,
                   "electra-pretraining"},
                  {"electra-large-discriminator",
                   R"({"hidden_size":1024,"embedding_size":1024,"num_hidden_layers":24,"num_attention_heads":16,"intermediate_size":4096})",
                   512, "electra-pretraining"}},
  };
  return kFamily;
}

}  // namespace plimsoll
