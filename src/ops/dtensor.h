// Ops on DTensors, as they unfold into local ops and collectives (torch/distributed/tensor of PyTorch 2.14). A tensor here is this rank's
// local one; what its placement is (a shard of some dimension, a replica, a summand) is known by who calls.
#pragma once

#include "tensor/node.h"

namespace plimsoll {

// DTensor.from_local: a node of its own, where gradients meet.
Tensor from_local(const Tensor& x);
// Summand to replica; the gradient passes as it is.
Tensor all_reduce(const Tensor& summand);
// A replica whose gradient is a summand: nothing happens but in backward.
Tensor all_reduce_gradient(const Tensor& x);
// Summand to shard of dimension `dim`; the gradient is gathered.
Tensor reduce_scatter(const Tensor& summand, int dim, int64_t world);
// Shard to replica; the gradient is a summand, which is reduced and scattered.
Tensor all_gather(const Tensor& shard, int dim, int64_t world);
// The same when the gradient is a replica: this rank's part of it is copied.
Tensor all_gather_output(const Tensor& shard, int dim, int64_t world);

// A table of `rows` of which this rank has some: looks up those, gives a summand. The gradient is of the whole table, on every rank.
Tensor sharded_embedding(const Tensor& weight, const Tensor& ids, int64_t rows);
// loss_parallel: the mean cross-entropy of logits that are sharded over classes, (N, C / world).
Tensor sharded_cross_entropy(const Tensor& logits, const Tensor& target);

}  // namespace plimsoll
