#include "step/clip.h"

#include <algorithm>

#include "optim/foreach.h"
#include "tensor/number.h"

namespace plimsoll {

namespace {

// Norms are of sums: what is a summand is reduced over the ranks first.
Tensors summed_gradients(const std::vector<Parameter*>& parameters, const Positions& positions) {
  Tensors out;
  for (size_t i : positions)
    if (parameters[i]->gradient_placement == GradientPlacement::partial) out.push_back(temporary("all_reduce", parameters[i]->grad));
  return out;
}

// One norm per gradient. On CUDA _foreach_norm reduces chunks of 65,536 elements into a scratch tensor first
// (ForeachReduceOp.cu, kChunkSize); the recorder's tensors and the CPU take the loop, which has none.
Tensors norms_of(const std::vector<Parameter*>& parameters, const Positions& positions) {
  const Tensors grads = gradients(parameters, positions), summed = summed_gradients(parameters, positions);
  const bool sharded = parameters[positions[0]]->is_dtensor;
  const Tensor& first = grads[0];
  const Dialect& dialect = first.tape().dialect;
  const bool in_chunks = dialect.rules.foreach_norm_in_chunks && !dialect.recorder;
  Tensor scratch;
  if (in_chunks) {
    constexpr int64_t kChunkSize = 65536;
    int64_t chunks = 0;
    for (const Tensor& g : grads) chunks = std::max(chunks, (g.numel() + kChunkSize - 1) / kChunkSize);
    const DType dtype = is_half(first.dtype()) ? DType::float32 : first.dtype();
    scratch = temporary("_foreach_norm", {checked_mul(static_cast<int64_t>(grads.size()), chunks)}, dtype, first.tape());
  }
  Tensors norms;
  const char* op = !in_chunks && !sharded ? "linalg_vector_norm" : "_foreach_norm";
  for (const Tensor& g : grads) norms.push_back(temporary(op, Dims{}, g.dtype(), g.tape()));
  return norms;
}

// The norm of each rank's part becomes that of the whole: powers are summed over the ranks, one dimension of the mesh after the other
// (_NormPartial in torch/distributed/tensor/_ops/_math_ops.py).
Tensor sum_over_ranks(const Tensor& norms, int mesh_dims) {
  Tensor whole = norms;
  for (int d = 0; d < mesh_dims; ++d) {
    const Tensor powers = temporary("pow", whole);
    const Tensor sums = temporary("all_reduce", powers);
    whole = temporary("pow", sums);
  }
  return whole;
}

// Norms of what is on every rank become summands before they are stacked with those of shards.
Tensors as_summands(const std::vector<Parameter*>& parameters, const Tensors& norms, const ClipMesh& mesh) {
  Tensors out;
  for (size_t i : with_gradients(parameters)) {
    const bool replica = std::find(mesh.replicas.begin(), mesh.replicas.end(), parameters[i]) != mesh.replicas.end();
    if (replica || parameters[i]->gradient_placement != GradientPlacement::own) out.push_back(temporary("div", norms.front()));
  }
  return out;
}

Tensor total_norm(const std::vector<Parameter*>& parameters, const ClipMesh& mesh) {
  const bool sharded = parameters.front()->is_dtensor;
  Tensors norms;
  DType dtype = parameters[with_gradients(parameters)[0]]->grad.dtype();
  for (const Positions& group : by_dtype(parameters)) {
    const Tensors more = norms_of(parameters, group);
    norms.insert(norms.end(), more.begin(), more.end());
    dtype = promote(dtype, more[0].dtype());
  }
  Tensor stacked;
  {
    const Tensors summands = as_summands(parameters, norms, mesh);
    stacked = temporary("stack", {static_cast<int64_t>(norms.size())}, dtype, norms[0].tape());
  }
  const Tensor whole = sharded ? sum_over_ranks(stacked, mesh.dims) : stacked;
  return temporary("linalg_vector_norm", Dims{}, dtype, stacked.tape());
}

}  // namespace

void clip_grad_norm(const std::vector<Parameter*>& parameters, const ClipMesh& mesh) {
  if (with_gradients(parameters).empty()) return;
  const Tensor norm = total_norm(parameters, mesh);
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
