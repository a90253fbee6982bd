// Matrix products and linear layers, with PyTorch's rules for folding, expanding and copying.
#pragma once

#include "tensor/node.h"

namespace plimsoll {

Tensor mm(const Tensor& a, const Tensor& b);  // (n, k) x (k, m)
Tensor addmm(const Tensor& bias, const Tensor& a, const Tensor& b);
Tensor bmm(const Tensor& a, const Tensor& b);
Tensor baddbmm(const Tensor& bias, const Tensor& a, const Tensor& b);  // bias + alpha * (a x b); no gradient for the bias
Tensor matmul(const Tensor& a, const Tensor& b);
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});

}  // namespace plimsoll
