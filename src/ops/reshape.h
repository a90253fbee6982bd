// Views, copies and joins. A view shares its storage; a reshape copies only when the strides force it to.
#pragma once

#include "tensor/node.h"

namespace plimsoll {

// Views.
Tensor view(const Tensor& x, const Dims& shape);
Tensor transpose(const Tensor& x, int a, int b);
Tensor permute(const Tensor& x, const Dims& order);
Tensor t(const Tensor& x);
Tensor unsqueeze(const Tensor& x, int dim);
Tensor squeeze(const Tensor& x, int dim);
Tensor expand(const Tensor& x, const Dims& sizes);  // -1 keeps a size
Tensor slice(const Tensor& x, int dim, int64_t start, int64_t end, int64_t step = 1);
Tensor getitem(const Tensor& x, int dim, int64_t start, int64_t end);  // Python's x[..., start:end]: the whole range is no slice
Tensor select(const Tensor& x, int dim, int64_t index);
Tensors split(const Tensor& x, int64_t size, int dim);
Tensors split(const Tensor& x, const std::vector<int64_t>& sizes, int dim);
Tensors chunk(const Tensor& x, int64_t chunks, int dim);
Tensors unbind(const Tensor& x, int dim);

// Views where possible, else copies.
Tensor reshape(const Tensor& x, const Dims& shape);
Tensor flatten(const Tensor& x, int start, int end = -1);
Tensor contiguous(const Tensor& x);
Tensor to(const Tensor& x, DType dtype);  // no copy when the type is the same

// Copies.
Tensor clone(const Tensor& x);  // contiguous
Tensor cat(const Tensors& xs, int dim);
Tensor stack(const Tensors& xs, int dim);
Tensor index(const Tensor& x, const Tensors& indices);  // x[i, j, ...] by tensors that broadcast, over the first dimensions
Tensor repeat_rows(const Tensor& x, int64_t times);     // (N, C) -> (times N, C): x.repeat(times, 1)
Tensor repeat_interleave(const Tensor& x, int64_t repeats, int dim);
Tensor roll(const Tensor& x, const Dims& shifts, const Dims& dims);
Tensor constant_pad_nd(const Tensor& x, const Dims& pad);  // pairs from the last dimension

}  // namespace plimsoll
