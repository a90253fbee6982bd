#include "ops/index.h"

namespace plimsoll {

// saves the indices; backward adds the gradient into zeros of the full size, in place
Tensor index(const Tensor& x, const Tensor& indices) {
  Op op(x.tape(), "index", {&x});
  Saved saved = op.save(indices);
  Dims sizes = indices.sizes();
  for (int i = 1; i < x.dim(); ++i) sizes.push_back(x.size(i));
  return op.finish(empty(x.tape(), sizes, x.dtype()), [saved = std::move(saved), before = x.sizes()](Tensors& g, Needs) {
    const Tensor positions = saved.unpack();
    Op zeros(positions.tape(), "new_zeros", {});
    return Tensors{empty(positions.tape(), before, g[0].dtype())};
  });
}

}  // namespace plimsoll
