#include "step/clip.h"

#include <algorithm>

#include "optim/foreach.h"
#include "tensor/number.h"

namespace plimsoll {

namespace {

// One norm per gradient. On CUDA _foreach_norm reduces chunks of 65,536 elements into a scratch tensor first
// (ForeachReduceOp.cu, kChunkSize); the recorder's tensors and the CPU take the loop, which has none.
Tensors norms_of(const Tensors& grads) {
  const Tensor& first = grads[0];
  const bool recorder = first.tape().dialect.recorder || first.tape().dialect.cpu;
  Tensor scratch;
  if (!recorder) {
    constexpr int64_t kChunkSize = 65536;
    int64_t chunks = 0;
    for (const Tensor& g : grads) chunks = std::max(chunks, (g.numel() + kChunkSize - 1) / kChunkSize);
    const DType dtype = is_half(first.dtype()) ? DType::float32 : first.dtype();
    scratch = temporary("_foreach_norm", {checked_mul(static_cast<int64_t>(grads.size()), chunks)}, dtype, first.tape());
  }
  Tensors norms;
  for (const Tensor& g : grads) norms.push_back(temporary(recorder ? "linalg_vector_norm" : "_foreach_norm", Dims{}, g.dtype(), g.tape()));
  return norms;
}

Tensor total_norm(const std::vector<Parameter*>& parameters) {
  Tensors norms;
  DType dtype = parameters[with_gradients(parameters)[0]]->grad.dtype();
  for (const Positions& group : by_dtype(parameters)) {
    const Tensors more = norms_of(gradients(parameters, group));
    norms.insert(norms.end(), more.begin(), more.end());
    dtype = promote(dtype, more[0].dtype());
  }
  const Tensor stacked = temporary("stack", {static_cast<int64_t>(norms.size())}, dtype, norms[0].tape());
  return temporary("linalg_vector_norm", Dims{}, dtype, stacked.tape());
}

}  // namespace

void clip_grad_norm(const std::vector<Parameter*>& parameters) {
  if (with_gradients(parameters).empty()) return;
  const Tensor norm = total_norm(parameters);
  Tape& tape = norm.tape();
  const auto with_number = [&](const char* op, const Tensor& t) {
    const Number number(tape, t.dtype());
    return temporary(op, t);
  };
  Tensor coefficient;  // max_norm / (norm + 1e-6)
  {
    const Tensor shifted = with_number("add", norm);
    coefficient = with_number("mul", temporary("reciprocal", shifted));
  }
  const Tensor clamped = temporary("clamp", coefficient);
}

}  // namespace plimsoll
