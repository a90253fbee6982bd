// Sums, means and other reductions.
#pragma once

#include "tensor/node.h"

namespace plimsoll {

Tensor sum(const Tensor& x, const Dims& dims, bool keepdim);
Tensor sum(const Tensor& x);  // all elements
Tensor mean(const Tensor& x, const Dims& dims, bool keepdim);
Tensor var(const Tensor& x, int dim);                   // of a sample: divided by n - 1
Tensor vector_norm(const Tensor& x, const Dims& dims);  // Euclidean; keeps the reduced dimensions
Tensor max(const Tensor& x, bool keepdim);              // the values, over the last dimension
Tensor sum_to_size(const Tensor& x, const Dims& sizes);
Tensor all(const Tensor& x);
Tensor cumsum(const Tensor& x, int dim, DType dtype);  // of integers and bools: no gradient
Tensor cumsum(const Tensor& x, int dim);

}  // namespace plimsoll
