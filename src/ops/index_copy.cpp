#include "ops/index_copy.h"

#include <cassert>

namespace plimsoll {

// saves the indices; backward: grad.index_select(-1, indices)
Tensor index_copy_(const Tensor& x, const Tensor& indices, const Tensor& source) {
  assert(!x.requires_grad());
  Op op(x.tape(), "index_copy_", {&source});
  Saved saved = op.save(indices);
  return op.finish(detach(x), [saved = std::move(saved), sizes = source.sizes()](Tensors& g, Needs) {
    const Tensor indices = saved.unpack();
    Op select(indices.tape(), "index_select", {});
    return Tensors{empty(indices.tape(), sizes, g[0].dtype())};
  });
}

// saves the indices; backward: grad.index_select(0, indices) for the source, the gradient itself for x
Tensor index_add_(const Tensor& x, const Tensor& indices, const Tensor& source) {
  Op op(x.tape(), "index_add_", {&x, &source});
  Saved saved = op.save(indices);
  return op.finish(detach(x), [saved = std::move(saved), sizes = source.sizes()](Tensors& g, Needs needs) {
    const Tensor indices = saved.unpack();
    Op select(indices.tape(), "index_select", {});
    Tensors out(2);
    if (needs[1]) out[1] = empty(indices.tape(), sizes, g[0].dtype());
    if (needs[0]) out[0] = g[0];
    return out;
  });
}

}  // namespace plimsoll
