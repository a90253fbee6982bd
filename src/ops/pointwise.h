// Element-wise ops. Names are PyTorch's; a comment above each body says what autograd keeps.
#pragma once

#include "tensor/node.h"

namespace plimsoll {

// Two tensors (broadcast), or a tensor and a number (which costs nothing).
Tensor add(const Tensor& a, const Tensor& b);
Tensor sub(const Tensor& a, const Tensor& b);
Tensor mul(const Tensor& a, const Tensor& b);
Tensor div(const Tensor& a, const Tensor& b);
Tensor add_scalar(const Tensor& a);
Tensor sub_scalar(const Tensor& a);
Tensor rsub_scalar(const Tensor& a);  // number - a
Tensor mul_scalar(const Tensor& a);
Tensor div_scalar(const Tensor& a);
Tensor add_(const Tensor& a, const Tensor& b);                            // in place: returns a's memory with the new history
Tensor mul_(const Tensor& a, const Tensor& b);                            // b: no gradient
Tensor div_(const Tensor& a, const Tensor& b);                            // in place
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);  // undefined: a number

Tensor masked_fill(const Tensor& x, const Tensor& mask);   // with a number
Tensor masked_fill_(const Tensor& x, const Tensor& mask);  // in place
Tensor minimum(const Tensor& a, const Tensor& b);

Tensor neg(const Tensor& x);
Tensor abs(const Tensor& x);
Tensor pow(const Tensor& x, double exponent);
Tensor rsqrt(const Tensor& x);
Tensor sqrt(const Tensor& x);
Tensor reciprocal(const Tensor& x);
Tensor exp(const Tensor& x);
Tensor log(const Tensor& x);
Tensor cos(const Tensor& x);
Tensor sin(const Tensor& x);
Tensor tanh(const Tensor& x);
Tensor sigmoid(const Tensor& x);
Tensor softplus(const Tensor& x);
Tensor relu(const Tensor& x);
Tensor relu_(const Tensor& x);
Tensor silu(const Tensor& x);
Tensor silu_(const Tensor& x);
Tensor elu(const Tensor& x);
Tensor selu(const Tensor& x);
Tensor leaky_relu(const Tensor& x);
Tensor mish(const Tensor& x);
Tensor gelu(const Tensor& x);  // exact and tanh forms allocate alike
Tensor hardtanh(const Tensor& x);
Tensor hardtanh_(const Tensor& x);  // ReLU6(inplace=True)
Tensor hardswish(const Tensor& x);
Tensor hardswish_(const Tensor& x);
Tensor hardsigmoid(const Tensor& x);
Tensor hardsigmoid_(const Tensor& x);
Tensor dropout(const Tensor& x, double p);   // p == 0 and evaluation return x itself
Tensor dropout_(const Tensor& x, double p);  // Dropout(inplace=True)
Tensor clamp(const Tensor& x);
Tensor clamp_(const Tensor& x);
Tensor clamp_min(const Tensor& x);
Tensor clamp_max(const Tensor& x);  // torch.clamp(x, max=number)

// No gradient.
Tensor compare(const char* name, const Tensor& a, const Tensor& b);  // bool, broadcast
Tensor compare_scalar(const char* name, const Tensor& a);
Tensor nondiff(const char* name, const Tensor& a, DType dtype);  // same shape, another type
Tensor arange(Tape& tape, int64_t n, DType dtype = DType::int64);
Tensor filled(Tape& tape, const char* name, const Dims& sizes, DType dtype);  // zeros, ones, full

}  // namespace plimsoll
