// transformers.models.bert: BertForMaskedLM, BertForPreTraining and BertForSequenceClassification.
#include "model/family.h"
#include "nn/bert_heads.h"

namespace plimsoll {

namespace {

struct BertPredictionHeadTransform : Module {
  BertPredictionHeadTransform(Module& parent, std::string_view name, const BertConfig& c) : Module(parent, name), config(c) {}

  Tensor operator()(const Tensor& x) const {
    Forward here(*this);
    Tensor hidden = dense(x);  // (B, T, C)
    hidden = activation(config.hidden_act, hidden);
    hidden = norm(hidden);
    return hidden;
  }

  const BertConfig& config;
  Linear dense{*this, "dense", config.hidden_size, config.hidden_size};
  LayerNorm norm{*this, "LayerNorm", config.hidden_size};
};

struct BertLMPredictionHead : Module {
  BertLMPredictionHead(Module& parent, std::string_view name, const BertConfig& c, const Tensor& embedding)
      : Module(parent, name),
        bias(parameter("bias", {c.vocab_size})),
        transform(*this, "transform", c),
        decoder(*this, "decoder", c, embedding, bias) {}

  Tensor operator()(const Tensor& x) const {
    Forward here(*this);
    Tensor hidden = transform(x);  // (B, T, C)
    hidden = decoder(hidden);      // (B, T, V)
    return hidden;
  }

  Tensor bias;  // the decoder's own bias when tied; without a gradient when not
  BertPredictionHeadTransform transform;
  BertDecoder decoder;
};

struct BertOnlyMLMHead : Module {
  BertOnlyMLMHead(Module& parent, std::string_view name, const BertConfig& c, const Tensor& embedding)
      : Module(parent, name), predictions(*this, "predictions", c, embedding) {}
  BertLMPredictionHead predictions;
};

struct BertForMaskedLM : Model {
  BertForMaskedLM(Build& build, const Config& c) : Model(build), config(c) {}

  Output forward(const Batch& batch) override {
    const BertModel::Outputs outputs = bert(batch.input_ids);
    const Tensor prediction_scores = cls.predictions(outputs.last_hidden_state);  // (B, T, V)
    return {flat_cross_entropy(prediction_scores, batch.labels, false), {prediction_scores}};
  }

  BertConfig config;
  BertModel bert{*this, "bert", config, false};
  BertOnlyMLMHead cls{*this, "cls", config, bert.embeddings.word_embeddings.weight};
};

struct BertPreTrainingHeads : Module {
  BertPreTrainingHeads(Module& parent, std::string_view name, const BertConfig& c, const Tensor& embedding)
      : Module(parent, name),
        predictions(*this, "predictions", c, embedding),
        seq_relationship(*this, "seq_relationship", c.hidden_size, 2) {}
  BertLMPredictionHead predictions;
  Linear seq_relationship;
};

// Masked tokens, and whether the second sentence follows the first.
struct BertForPreTraining : Model {
  BertForPreTraining(Build& build, const Config& c) : Model(build), config(c) {}

  Output forward(const Batch& batch) override {
    const BertModel::Outputs outputs = bert(batch.input_ids);
    const Tensor prediction_scores = cls.predictions(outputs.last_hidden_state);        // (B, T, V)
    const Tensor seq_relationship_score = cls.seq_relationship(outputs.pooler_output);  // (B, 2)
    return {pair_loss(prediction_scores, seq_relationship_score, batch), {prediction_scores, seq_relationship_score}};
  }

  BertConfig config;
  BertModel bert{*this, "bert", config, true};
  BertPreTrainingHeads cls{*this, "cls", config, bert.embeddings.word_embeddings.weight};
};

std::unique_ptr<Model> make_bert(Build& build, const Config& config) { return std::make_unique<BertForMaskedLM>(build, config); }

std::unique_ptr<Model> make_bert_pretraining(Build& build, const Config& config) {
  return std::make_unique<BertForPreTraining>(build, config);
}

std::unique_ptr<Model> make_bert_classifier(Build& build, const Config& config) {
  return std::make_unique<PooledClassifier<BertConfig, BertModel>>(build, config, BertConfig(config), "bert");
}

}  // namespace

const Family& bert_family() {
  static const Family kFamily{
      .name = "bert",
      .models = {{"bert", {"BertForMaskedLM"}, InputKind::lm, 512, make_bert},
                 {"bert-classifier", {"BertForSequenceClassification"}, InputKind::cls, 512, make_bert_classifier},
                 {"bert-pretraining", {"BertForPreTraining"}, InputKind::pair, 512, make_bert_pretraining}},
      .presets = {{"bert-base", R"({})", 512},
                  {"bert-base-uncased", R"({})", 512},
                  {"bert-base-cased", R"({"vocab_size":28996})", 512},
                  {"bert-large", R"({"hidden_size":1024,"num_hidden_layers":24,"num_attention_heads":16,"intermediate_size":4096})", 512}},
      .adapters = {.lora = {"query", "value"}, .ia3 = {"key", "value", "output.dense"}, .feedforward = {"output.dense"}},
  };
  return kFamily;
}

}  // namespace plimsoll
