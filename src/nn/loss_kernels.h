// Cross-entropies that take the head's weight and the last hidden states instead of logits, so that the logits of all tokens
// are never alive at once: Liger's, torchtune's and Apple's. Each is executed op by op from its library's source.
#pragma once

#include <functional>

#include "nn/layers.h"

namespace plimsoll {

struct HeadCall {
  const Linear& head;
  std::function<Tensor(const Tensor&)> logits;  // of hidden states: the head, and what the model does to its result
  bool soft_capped = false;
};

// Whether the build's settings replace the model's own loss in this forward.
bool replaces_loss(const Build& build, const Tensor& labels);
// hidden: (B, T, C), labels: (B, T)
Tensor linear_cross_entropy(Build& build, const HeadCall& call, const Tensor& hidden, const Tensor& labels);

}  // namespace plimsoll
