#include "ops/embedding.h"

#include <algorithm>

namespace plimsoll {

namespace {

// What embedding_dense_backward_cuda and embedding_backward_cuda_kernel (Embedding.cu, EmbeddingBackwardKernel.cu) hold while they
// run: beyond 3072 indices they are sorted, and the rows of each are summed in parts of at most 10, in fp32.
void backward_scratch(const Tensor& ids, const Dims& table) {
  Tape& tape = ids.tape();
  const int64_t n = ids.numel(), index = checked_mul(n, size_of(DType::int64));
  if (!tape.dialect.kernels.scratch || n <= 3072) return;
  const Ref<Storage> sorted = tape.scratch(index), original = tape.scratch(index);
  {
    const Ref<Storage> range = tape.scratch(index), sort = tape.scratch(checked_mul(index, 2));  // cub's double buffer
  }
  const int64_t segments = std::min(n, table[0]), parts = n / 10 + segments;
  const Ref<Storage> offsets = tape.scratch(index), per_segment = tape.scratch(checked_mul(segments, 16)),
                     starts = tape.scratch(checked_mul(parts, 8)),
                     sums = tape.scratch(checked_mul(checked_mul(parts, table[1]), size_of(DType::float32)));
}

}  // namespace

// saves the indices; backward makes a dense gradient of the whole table
Tensor embedding(const Tensor& weight, const Tensor& indices) {
  Op op(weight.tape(), "embedding", {&weight});
  op.reads_part();
  Saved saved = op.save(indices);
  Dims sizes = indices.sizes();
  sizes.push_back(weight.size(1));
  return op.finish(empty(weight.tape(), sizes, weight.dtype()), [saved = std::move(saved), table = weight.sizes()](Tensors& g, Needs) {
    const Tensor ids = saved.unpack();
    Op op(ids.tape(), "embedding_dense_backward", {});
    Tensor grad = empty(ids.tape(), table, g[0].dtype());
    backward_scratch(ids, table);
    return Tensors{std::move(grad)};
  });
}

}  // namespace plimsoll
