// What transformers' classification heads share: how many labels, which loss.
#pragma once

#include "job/config.h"
#include "tensor/node.h"

namespace plimsoll {

struct Classification {
  // Reads num_labels (or id2label, which config.json files hold instead) and problem_type.
  explicit Classification(const Config& config);
  int64_t num_labels = 2;
  bool regression = false;
  // ForSequenceClassificationLoss. logits: (B, labels), labels: (B).
  Tensor loss(const Tensor& logits, const Tensor& labels) const;
};

}  // namespace plimsoll
