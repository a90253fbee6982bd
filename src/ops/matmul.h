// Matrix products and linear layers, with PyTorch's rules for folding, expanding and copying.
#pragma once

#include "tensor/node.h"

namespace plimsoll {

Tensor mm(const Tensor& a, const Tensor& b);  // (n, k) x (k, m)
Tensor addmm(const Tensor& bias, const Tensor& a, const Tensor& b);
Tensor bmm(const Tensor& a, const Tensor& b);
Tensor baddbmm(const Tensor& bias, const Tensor& a, const Tensor& b);  // bias + alpha * (a x b); no gradient for the bias
Tensor matmul(const Tensor& a, const Tensor& b);
// torch._grouped_mm: the rows of a (S, K) belong to one group after another, whose ends are `offsets` (E) of int32; each group is
// multiplied by its own matrix of b (E, K, M). Autocast does not know it.
Tensor grouped_mm(const Tensor& a, const Tensor& b, const Tensor& offsets);
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});
// LinearFunctionForZeroStage3 of DeepSpeed's zero/linear.py: it keeps the weight itself, whose memory may be another one in backward.
Tensor linear_function(const Tensor& x, const Tensor& weight, const Tensor& bias = {});

}  // namespace plimsoll
