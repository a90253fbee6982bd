#include "ops/embedding.h"

namespace plimsoll {

// saves the indices; backward makes a dense gradient of the whole table
Tensor embedding(const Tensor& weight, const Tensor& indices) {
  Op op(weight.tape(), "embedding", {&weight});
  Saved saved = op.save(indices);
  Dims sizes = indices.sizes();
  sizes.push_back(weight.size(1));
  return op.finish(empty(weight.tape(), sizes, weight.dtype()), [saved = std::move(saved), table = weight.sizes()](Tensors& g, Needs) {
    const Tensor ids = saved.unpack();
    Op op(ids.tape(), "embedding_dense_backward", {});
    return Tensors{empty(ids.tape(), table, g[0].dtype())};
  });
}

}  // namespace plimsoll
