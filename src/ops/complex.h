// Complex numbers as rotary positions need them. Two floats are one number of eight bytes: DType::float64 stands for complex64, which
// takes as much memory everywhere.
#pragma once

#include "tensor/node.h"

namespace plimsoll {

constexpr DType kComplex64 = DType::float64;

Tensor view_as_complex(const Tensor& x);                    // (..., 2) in fp32 -> (...)
Tensor view_as_real(const Tensor& x);                       // (...) -> (..., 2) in fp32
Tensor complex_mul(const Tensor& x, const Tensor& factor);  // the factor has no gradient

}  // namespace plimsoll
