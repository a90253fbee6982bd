// ForSequenceClassification of the decoders: the scores of each sequence's last token that is not padding.
#pragma once

#include "nn/classification.h"
#include "nn/layers.h"
#include "nn/model.h"

namespace plimsoll {

// What picks the scores out of all tokens'; Python keeps all of it until the model returns.
struct LastToken {
  // logits: (B, T, labels). Without a padding token there can be only one sequence.
  LastToken(const Tensor& logits, const Tensor& input_ids, bool has_padding_token);
  Tensor non_pad_mask, token_indices, last_non_pad_token;
  Tensor pooled_logits;  // (B, labels)
};

// Body is the model below the head: a module made of (parent, name, settings) and called with the ids.
template <class Settings, class Body>
struct LastTokenClassifier : Model {
  // `padding` is the class's default of pad_token_id.
  LastTokenClassifier(Build& build, const Config& c, const Settings& s, const char* name, int64_t width, std::optional<int64_t> padding)
      : Model(build),
        settings(s),
        classes(c),
        has_padding_token(!c.is_null("pad_token_id") && (c.find({"pad_token_id"}) || padding)),
        body(*this, name, settings),
        score(*this, "score", width, classes.num_labels, false) {}

  Output forward(const Batch& batch) override {
    const Tensor hidden = body(batch.input_ids);  // (B, T, C)
    const Tensor logits = score(hidden);          // (B, T, labels)
    const LastToken token(logits, batch.input_ids, has_padding_token);
    return {classes.loss(token.pooled_logits, batch.labels), {token.pooled_logits}};
  }

  Settings settings;
  Classification classes;
  bool has_padding_token;
  Body body;
  Linear score;
};

}  // namespace plimsoll
