// What the optimizers' files share: results of single and of foreach kernels, and the groups that foreach kernels take.
// An optimizer runs without autograd and in place where it can, so a step is a list of temporaries and of the moments at
// which Python lets go of them: a name keeps its tensor until it is assigned again or its function returns, also from one
// turn of a loop to the next. The C++ locals of a step have the lifetimes of the Python names they stand for.
#pragma once

#include "tensor/node.h"

namespace plimsoll {

// Indices into the list of parameters.
using Positions = std::vector<size_t>;

Positions with_gradients(const std::vector<Parameter*>& parameters);
// Those with a gradient, one group per element type (_group_tensors_by_device_and_dtype). The groups come out of a hash
// map, in practice the last one met first.
std::vector<Positions> by_dtype(const std::vector<Parameter*>& parameters);

template <class F>
Tensors gather(const Positions& positions, F get) {
  Tensors out;
  out.reserve(positions.size());
  for (size_t i : positions) out.push_back(get(i));
  return out;
}
Tensors gradients(const std::vector<Parameter*>& parameters, const Positions& positions);
// What an op on DTensors makes of gradients that are not placed like their parameters; it lives as long as the op runs.
Tensors redistributed_gradients(const std::vector<Parameter*>& parameters, const Positions& positions);

// One result like its input, or of two inputs: broadcast, and a zero-dimensional tensor does not widen the other's type.
Tensor temporary(const char* op, const Tensor& like);
Tensor temporary(const char* op, const Tensor& a, const Tensor& b);
Tensor temporary(const char* op, const Dims& sizes, DType dtype, Tape& tape);
inline Tensor square(const char* op, int64_t n, Tape& tape) { return temporary(op, {n, n}, DType::float32, tape); }
// Nested calls: each result dies when the next one exists.
Tensor chain(Tensor t, std::initializer_list<const char*> ops);
// number / t, which Python spells t.reciprocal() * number: t lives through both.
Tensor rdiv(Tensor t);
// One result per tensor, as a _foreach op makes it.
Tensors foreach_op(const char* op, const Tensors& like);
Tensors foreach_op(const char* op, const Tensors& a, const Tensors& b);

Tensor zeros_like(const Tensor& t);
// A zero-dimensional float32 on the device: a step count where the host may not read it (capturable, fused).
Tensor device_scalar(const char* op, Tape& tape);
// torch.where with numbers: each becomes a tensor on the device first and dies with the call.
Tensor where_scalar(const Tensor& condition, const Tensor& t);
Tensor where_scalars(const Tensor& condition);

// The step count that `.item()` gives: what the recorder said, or that of a run well under way, which is what the
// simulated steps stand for.
double step_count(const Tape& tape);
// RAdam's warm-up: over how many steps its average of squares reaches at that count. Steps on which it is short have no denominator.
double rectified_length(double beta2, const Tape& tape);

}  // namespace plimsoll
