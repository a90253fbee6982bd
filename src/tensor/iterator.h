// How an element-wise op lays out its result (TensorIterator's reorder_dimensions): like its inputs, when they agree on an
// order of dimensions. Later views and reshapes copy or do not copy because of it.
#pragma once

#include <initializer_list>

#include "tensor/tensor.h"

namespace plimsoll {

Dims iterator_strides(const Dims& shape, std::initializer_list<const Tensor*> inputs);

}  // namespace plimsoll
