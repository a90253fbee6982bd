// torch.tensordot, which SOAP and Shampoo contract gradients with.
#pragma once

#include "tensor/node.h"

namespace plimsoll {

// Sums over dimension dims_a[k] of `a` with dims_b[k] of `b`; what is left of `a` comes first. Both are seen as matrices, which
// copies them where their strides force it (ATen/native/Linear.cpp).
Tensor tensordot(const Tensor& a, const Tensor& b, const Dims& dims_a, const Dims& dims_b);
// tensordot(t, t) over every dimension but one: size(dim) x size(dim).
Tensor outer_product(const Tensor& t, int dim);
// The last of t's dimensions becomes the first one's place: what SOAP and Shampoo do where they have no matrix for it.
Tensor rolled(const Tensor& t);

}  // namespace plimsoll
