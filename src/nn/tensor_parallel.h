// torch.distributed.tensor.parallel: which layers of a decoder a rank has a part of, and what it has to send. The plan is the usual one of
// Llama-like models: attention and feed-forward are column-wise and then row-wise parallel, the embedding and the head are sharded over the
// vocabulary; with sequence parallelism, norms and residuals are on a part of the tokens.
#pragma once

#include <string>

#include "job/parallel.h"
#include "nn/module.h"

namespace plimsoll {

enum class ParallelStyle : uint8_t {
  none,
  colwise,   // rows of the weight are shared out: a part of the outputs
  rowwise,   // columns are: a summand of all outputs
  head,      // colwise, from a part of the tokens and to all of the outputs
  sequence,  // whole, on a part of the tokens
};

struct TensorParallel {
  explicit TensorParallel(const TensorParallelSettings& settings) : settings(settings) {}
  ParallelStyle style_of(const Module& module) const;
  // n / world. Throws an Error with the worlds that divide n, which is called `what`.
  int64_t share(const std::string& what, int64_t n) const;

  TensorParallelSettings settings;
};

// What enters an attention or a feed-forward: with sequence parallelism, all tokens are gathered.
Tensor enter_parallel(const Build& build, const Tensor& x);
// What enters and leaves a parallel layer.
Tensor enter_layer(const TensorParallel& parallel, ParallelStyle style, const Tensor& x);
Tensor leave_layer(const TensorParallel& parallel, ParallelStyle style, const Tensor& y);

}  // namespace plimsoll
