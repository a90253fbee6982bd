#include "ops/dtensor.h"

namespace plimsoll {

namespace {

Tensor made(Tape& tape, const char* name, const Dims& sizes, DType dtype) {
  Op op(tape, name, {});
  return empty(tape, sizes, dtype);
}

Tensor made_like(const Tensor& t, const char* name) { return made(t.tape(), name, t.sizes(), t.dtype()); }

// functional_collectives.all_gather_single: parts come one below the other and are joined along their dimension, which is a view when there
// is nothing above it.
Tensor gathered(const Tensor& shard, int dim, int64_t world) {
  int64_t above = 1;
  for (int i = 0; i < dim; ++i) above *= shard.size(i);
  Dims sizes = shard.sizes();
  sizes[dim] *= world;
  const Tensor stacked = made(shard.tape(), "all_gather_into_tensor", sizes, shard.dtype());
  return above == 1 ? stacked : made(shard.tape(), "cat", sizes, shard.dtype());
}

// functional_collectives.reduce_scatter_single
Tensor scattered(const Tensor& summand, int dim, int64_t world) {
  const Tensor stacked = dim == 0 ? summand : made_like(summand, "cat");
  Dims sizes = summand.sizes();
  sizes[dim] /= world;
  return made(summand.tape(), "reduce_scatter_tensor", sizes, summand.dtype());
}

int counted(const Tensor& x, int dim) { return dim < 0 ? dim + x.dim() : dim; }

// Which of `indices` this rank has, and those counted from its first: _MaskPartial._partition_value. Gives the mask and the indices.
std::pair<Tensor, Tensor> own_indices(const Tensor& indices) {
  Tape& tape = indices.tape();
  const auto mask_like = [&](const char* name) { return made(tape, name, indices.sizes(), DType::bool_); };
  Tensor mask;
  {
    const Tensor below = mask_like("lt"), above = mask_like("ge");
    mask = mask_like("__or__");
  }
  const Tensor copy = made_like(indices, "clone");
  return {mask, made_like(indices, "sub")};
}

}  // namespace

Tensor all_reduce(const Tensor& summand) {
  Op op(summand.tape(), "all_reduce", {&summand});
  return op.finish(empty(summand.tape(), summand.sizes(), summand.dtype()), [](Tensors& g, Needs) { return std::move(g); });
}

Tensor from_local(const Tensor& x) {
  Op op(x.tape(), "from_local", {&x});
  return op.finish(detach(x), [](Tensors& g, Needs) { return std::move(g); });
}

Tensor all_reduce_gradient(const Tensor& x) {
  Op op(x.tape(), "from_local", {&x});
  return op.finish(detach(x), [](Tensors& g, Needs) { return Tensors{made_like(g[0], "all_reduce")}; });
}

Tensor reduce_scatter(const Tensor& summand, int dim, int64_t world) {
  Op op(summand.tape(), "redistribute", {&summand});
  return op.finish(scattered(summand, dim, world), [dim, world](Tensors& g, Needs) { return Tensors{gathered(g[0], dim, world)}; });
}

Tensor all_gather(const Tensor& shard, int dim, int64_t world) {
  Op op(shard.tape(), "redistribute", {&shard});
  return op.finish(gathered(shard, dim, world), [dim, world](Tensors& g, Needs) { return Tensors{scattered(g[0], dim, world)}; });
}

Tensor all_gather_output(const Tensor& shard, int dim, int64_t world) {
  Op op(shard.tape(), "redistribute", {&shard});
  return op.finish(gathered(shard, counted(shard, dim), world),
                   [sizes = shard.sizes()](Tensors& g, Needs) { return Tensors{made(g[0].tape(), "clone", sizes, g[0].dtype())}; });
}

// saves the ids
Tensor sharded_embedding(const Tensor& weight, const Tensor& ids, int64_t rows) {
  Op op(weight.tape(), "embedding", {&weight});
  op.reads_part();
  Saved saved = op.save(ids);
  const Dims table{rows, weight.size(1)};
  if (op.recording()) gradient_edge(weight).node->outputs[0].sizes = table;
  const auto own = own_indices(ids);
  Dims sizes = ids.sizes();
  sizes.push_back(weight.size(1));
  return op.finish(empty(weight.tape(), sizes, weight.dtype()), [saved = std::move(saved), table](Tensors& g, Needs) {
    const Tensor ids = saved.unpack();
    return Tensors{made(ids.tape(), "embedding_dense_backward", table, g[0].dtype())};
  });
}

namespace {

// torch/distributed/tensor/parallel/loss.py, _log_softmax
Tensor sharded_log_softmax(const Tensor& x) {
  Tape& tape = x.tape();
  const Dims row{x.size(0), 1};
  const auto reduced = [&](const char* name) {
    const Tensor own = made(tape, name, row, x.dtype());
    return made_like(own, "all_reduce");
  };
  const Tensor most = reduced("amax");
  const Tensor shifted = made_like(x, "sub");
  Tensor sum;
  {
    Tensor own;
    {
      const Tensor powers = made_like(x, "exp");
      own = made(tape, "sum", row, x.dtype());
    }
    sum = made_like(own, "all_reduce");
  }
  const Tensor log = made_like(sum, "log");
  return made_like(x, "sub");
}

// _nll_loss_forward with reduction "mean". Gives the loss and the weight of all rows.
std::pair<Tensor, Tensor> sharded_nll_loss(const Tensor& x, const Tensor& target) {
  Tape& tape = x.tape();
  const Dims rows = target.sizes();
  const auto not_ignored = [&] { return made(tape, "ne", rows, DType::bool_); };
  Tensor safe;
  {
    const Tensor counts = not_ignored();
    safe = made_like(target, "where");
  }
  auto [mask, indices] = own_indices(safe);
  const Tensor picked = made(tape, "gather", rows, x.dtype());
  mask.reset();
  const Tensor summed = made_like(picked, "all_reduce");
  Tensor result;
  {
    const Tensor negative = made_like(summed, "neg");
    const Tensor counts = not_ignored();
    result = made_like(negative, "where");
  }
  Tensor weight;
  {
    Tensor count;
    {
      const Tensor counts = not_ignored();
      count = made(tape, "sum", {}, DType::int64);
    }
    weight = made(tape, "to", {}, x.dtype());
  }
  const Tensor sum = made(tape, "sum", {}, x.dtype());
  return {made(tape, "div", {}, x.dtype()), weight};
}

// _nll_loss_and_log_softmax_backward
Tensor sharded_loss_backward(const Tensor& log_probabilities, const Tensor& target) {
  Tape& tape = target.tape();
  const DType dtype = log_probabilities.dtype();
  const Dims rows = target.sizes();
  Tensor grad = made(tape, "div", {}, dtype);
  const auto not_ignored = [&] { return made(tape, "ne", rows, DType::bool_); };
  Tensor safe;
  {
    const Tensor counts = not_ignored();
    safe = made_like(target, "where");
  }
  const Tensor update = made_like(log_probabilities, "zeros_like");
  const auto own = own_indices(safe);
  Tensor change;
  {
    const Tensor numbers = made(tape, "to", rows, dtype);
    change = made_like(numbers, "sub");
  }
  const Tensor range = made(tape, "arange", rows, DType::int64);
  {
    const Tensor counts = not_ignored();
    grad = made(tape, "where", rows, dtype);
  }
  Tensor sum;
  {
    const Tensor powers = made_like(log_probabilities, "exp");
    sum = made_like(powers, "add");
  }
  return made_like(sum, "mul");
}

}  // namespace

// saves the log-probabilities, the targets and the weight
Tensor sharded_cross_entropy(const Tensor& logits, const Tensor& target) {
  Op op(logits.tape(), "loss_parallel", {&logits});
  Saved saved_target = op.save(target);
  const Tensor log_probabilities = sharded_log_softmax(logits);
  Saved saved = op.save(log_probabilities);
  const auto [loss, weight] = sharded_nll_loss(log_probabilities, target);
  Saved saved_weight = op.save(weight);
  return op.finish(loss, [saved = std::move(saved), saved_target = std::move(saved_target), saved_weight = std::move(saved_weight)](
                             Tensors&, Needs) { return Tensors{sharded_loss_backward(saved.unpack(), saved_target.unpack())}; });
}

}  // namespace plimsoll
