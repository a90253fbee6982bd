// Classification heads that BERT and its kin share.
#pragma once

#include "nn/bert_encoder.h"
#include "nn/classification.h"
#include "ops/reshape.h"

namespace plimsoll {

// Of RoBERTa and ELECTRA: two layers over the first token.
struct FirstTokenHead : Module {
  using Activation = Tensor (*)(const Tensor&);
  FirstTokenHead(Module& parent, std::string_view name, const BertConfig& c, int64_t num_labels, Activation act)
      : Module(parent, name), config(c), act(act), out_proj(*this, "out_proj", c.hidden_size, num_labels) {}

  Tensor operator()(const Tensor& features) const {
    Forward here(*this);
    Tensor x = select(features, 1, 0);  // (B, C)
    x = dropout(x);
    x = dense(x);
    x = act(x);
    x = dropout(x);
    x = out_proj(x);  // (B, labels)
    return x;
  }

  const BertConfig& config;
  Activation act;
  Linear dense{*this, "dense", config.hidden_size, config.hidden_size};
  Dropout dropout{*this, "dropout", config.classifier_dropout};
  Linear out_proj;
};

// ForSequenceClassification of BERT and ALBERT: one layer over what the pooler gives. Body is made of (parent, name, settings, with a
// pooler).
template <class Settings, class Body>
struct PooledClassifier : Model {
  PooledClassifier(Build& build, const Config& c, const Settings& s, const char* name)
      : Model(build), config(s), classes(c), body(*this, name, config, true) {}

  Output forward(const Batch& batch) override {
    const auto outputs = body(batch.input_ids);
    const Tensor pooled_output = dropout(outputs.pooler_output);  // (B, C)
    const Tensor logits = classifier(pooled_output);              // (B, labels)
    return {classes.loss(logits, batch.labels), {logits}};
  }

  Settings config;
  Classification classes;
  Body body;
  Dropout dropout{*this, "dropout", config.classifier_dropout};
  Linear classifier{*this, "classifier", config.hidden_size, classes.num_labels};
};

}  // namespace plimsoll
