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
Tensor l1_loss(const Tensor& input, const Tensor& target);                            // one for each element: reduction="none"
// One loss a sample, by the kernels of PyTorch itself (not cuDNN's). log_probs: (T, B, classes), targets: B * target_length.
Tensor ctc_loss(const Tensor& log_probs, const Tensor& targets, int64_t target_length);
Tensor mse_loss_by_element(const Tensor& input, const Tensor& target);  // reduction="none"

}  // namespace plimsoll
