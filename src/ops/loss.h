// Softmax and the losses built on it.
#pragma once

#include "tensor/node.h"

namespace plimsoll {

Tensor softmax(const Tensor& x, std::optional<DType> dtype = {});  // over the last dimension
Tensor log_softmax(const Tensor& x, std::optional<DType> dtype = {});
Tensor nll_loss(const Tensor& log_probs, const Tensor& target);                       // mean
Tensor cross_entropy(const Tensor& logits, const Tensor& target);                     // mean
Tensor binary_cross_entropy_with_logits(const Tensor& logits, const Tensor& target);  // mean
Tensor mse_loss(const Tensor& input, const Tensor& target);                           // mean
Tensor mse_loss_by_element(const Tensor& input, const Tensor& target);                // reduction="none"

}  // namespace plimsoll
