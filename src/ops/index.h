// Indexing with a tensor of indices.
#pragma once

#include "tensor/node.h"

namespace plimsoll {

// x[indices]: indices address the first dimension; their shape takes its place.
Tensor index(const Tensor& x, const Tensor& indices);
// flash_attn.bert_padding: rows put at their places among `rows`, the rest zero.
Tensor index_put_first_axis(const Tensor& values, const Tensor& indices, int64_t rows);
Tensor index_select(const Tensor& x, const Tensor& indices);  // along the first dimension
Tensor gather(const Tensor& x, int dim, const Tensor& indices);

struct TopK {
  Tensor values, indices;
};
TopK topk(const Tensor& x, int64_t k);  // along the last dimension
// x[mask] = value in place, where the mask over the first dimensions has `chosen` true entries: returns x's memory with the new history.
Tensor index_put_(const Tensor& x, const Tensor& mask, const Tensor& value, int64_t chosen);
// x.scatter_reduce_(0, indices, src, "sum") in place: returns x's memory with the new history.
Tensor scatter_reduce_(const Tensor& x, const Tensor& indices, const Tensor& src);
// x.scatter_(1, indices, src) in place, into an x without a gradient: returns x's memory with the new history.
Tensor scatter_(const Tensor& x, const Tensor& indices, const Tensor& src);
// x.mul_(weights) with one weight for each row, which wants a gradient too: returns x's memory with the new history.
Tensor weigh_rows_(const Tensor& x, const Tensor& weights);
TopK sort(const Tensor& x);  // of integers: no gradient
// x.masked_scatter(mask, source) with x: (B, T, C), mask: (B, T, 1) with as many true elements, over all C, as source has values.
Tensor masked_scatter(const Tensor& x, const Tensor& mask, const Tensor& source);
Tensor argsort(const Tensor& x);  // of integers

}  // namespace plimsoll
