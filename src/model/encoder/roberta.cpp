// transformers.models.roberta: RobertaForMaskedLM and RobertaForSequenceClassification.
#include "model/family.h"
#include "nn/bert_heads.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

struct RobertaConfig : BertConfig {
  explicit RobertaConfig(const Config& c) : BertConfig(c, {.vocab_size = 50265}) { padding_position = c.integer({"pad_token_id"}, 1); }
};

struct RobertaLMHead : Module {
  RobertaLMHead(Module& parent, std::string_view name, const BertConfig& c, const Tensor& embedding)
      : Module(parent, name),
        bias(parameter("bias", {c.vocab_size})),
        dense(*this, "dense", c.hidden_size, c.hidden_size),
        layer_norm(*this, "layer_norm", c.hidden_size),
        decoder(*this, "decoder", c, embedding, bias) {}

  Tensor operator()(const Tensor& features) const {
    Forward here(*this);
    Tensor x = dense(features);  // (B, T, C)
    x = gelu(x);                 // always gelu, whatever hidden_act is
    x = layer_norm(x);
    x = decoder(x);  // (B, T, V)
    return x;
  }

  Tensor bias;  // the decoder's own bias when tied; without a gradient when not
  Linear dense;
  LayerNorm layer_norm;
  BertDecoder decoder;
};

struct RobertaForMaskedLM : Model {
  RobertaForMaskedLM(Build& build, const Config& c) : Model(build), config(c) {}

  Output forward(const Batch& batch) override {
    const BertModel::Outputs outputs = roberta(batch.input_ids);
    const Tensor prediction_scores = lm_head(outputs.last_hidden_state);  // (B, T, V)
    return {flat_cross_entropy(prediction_scores, batch.labels, false), {prediction_scores}};
  }

  RobertaConfig config;
  BertModel roberta{*this, "roberta", config, false};
  RobertaLMHead lm_head{*this, "lm_head", config, roberta.embeddings.word_embeddings.weight};
};

struct RobertaForSequenceClassification : Model {
  RobertaForSequenceClassification(Build& build, const Config& c) : Model(build), config(c), classes(c) {}

  Output forward(const Batch& batch) override {
    const BertModel::Outputs outputs = roberta(batch.input_ids);
    const Tensor logits = classifier(outputs.last_hidden_state);  // (B, labels)
    return {classes.loss(logits, batch.labels), {logits}};
  }

  RobertaConfig config;
  Classification classes;
  BertModel roberta{*this, "roberta", config, false};
  FirstTokenHead classifier{*this, "classifier", config, classes.num_labels, tanh};
};

std::unique_ptr<Model> make_roberta(Build& build, const Config& config) { return std::make_unique<RobertaForMaskedLM>(build, config); }

std::unique_ptr<Model> make_roberta_classifier(Build& build, const Config& config) {
  return std::make_unique<RobertaForSequenceClassification>(build, config);
}

constexpr const char* kXlmRoberta = R"({"vocab_size":30522})";

}  // namespace

const Family& camembert_family() {
  static const Family kFamily{
      .name = "camembert",
      .models = {copy_of({"camembert", {"CamembertForMaskedLM"}, InputKind::lm, 512, make_roberta}, kXlmRoberta),
                 copy_of({"camembert-classifier", {"CamembertForSequenceClassification"}, InputKind::cls, 512, make_roberta_classifier},
                         kXlmRoberta)},
      .first_position = 2,
  };
  return kFamily;
}

const Family& roberta_family() {
  static const Family kFamily{
      .name = "roberta",
      .models = {{"roberta", {"RobertaForMaskedLM"}, InputKind::lm, 512, make_roberta},
                 {"roberta-classifier", {"RobertaForSequenceClassification"}, InputKind::cls, 512, make_roberta_classifier}},
      .presets =
          {{"distilroberta-base", R"({"num_hidden_layers":6,"vocab_size":50265,"max_position_embeddings":514,"type_vocab_size":1})", 512},
           {"roberta-base", R"({"vocab_size":50265,"max_position_embeddings":514,"type_vocab_size":1})", 512},
           {"roberta-large",
            R"({"hidden_size":1024,"num_hidden_layers":24,"num_attention_heads":16,"intermediate_size":4096,"vocab_size":50265,"max_position_embeddings":514,"type_vocab_size":1})",
            512}},
      .adapters = {.lora = {"query", "value"}, .ia3 = {"key", "value", "output.dense"}, .feedforward = {"output.dense"}},
      .first_position = 2,
  };
  return kFamily;
}

const Family& xlm_roberta_family() {
  static const Family kFamily{
      .name = "xlm-roberta",
      .models = {copy_of({"xlm-roberta", {"XLMRobertaForMaskedLM"}, InputKind::lm, 512, make_roberta}, kXlmRoberta),
                 copy_of({"xlm-roberta-classifier", {"XLMRobertaForSequenceClassification"}, InputKind::cls, 512, make_roberta_classifier},
                         kXlmRoberta)},
      .presets =
          {{"xlm-roberta-base", R"({"vocab_size":250002,"max_position_embeddings":514,"type_vocab_size":1})", 512},
           {"xlm-roberta-large",
            R"({"hidden_size":1024,"num_hidden_layers":24,"num_attention_heads":16,"intermediate_size":4096,"vocab_size":250002,"max_position_embeddings":514,"type_vocab_size":1})",
            512}},
      .adapters = {.lora = {"query", "value"}},
      .first_position = 2,
  };
  return kFamily;
}

}  // namespace plimsoll
