// The end of the step: gradients averaged over the replicas, clipped, accumulated, and the new state as optax writes it.
#include <algorithm>

#include "xla/builder.h"
#include "xla/optax.h"

namespace plimsoll {

// lax.pmean over the devices, which may write over what it reads; without a gradient (a layer the loss does not see): zeros.
OpId ProgramBuilder::reduced_gradient(OpId parameter) {
  const XlaOp p = op(parameter);
  OpId g = gradients_[parameter];
  if (!g) g = emit(OpKind::elementwise, "zeros", p.sizes, p.dtype, {});
  program_.ops[g].category = Category::gradient;
  if (job_.program.jax.replicas == 1) return g;
  XlaOp reduce;
  reduce.kind = OpKind::opaque;
  reduce.in_place = true;
  reduce.name = "all_reduce";
  reduce.scope = p.scope;
  reduce.sizes = p.sizes;
  reduce.dtype = p.dtype;
  reduce.category = Category::gradient;
  reduce.operands = {g};
  return emit(std::move(reduce));
}

// An argument and the output that takes its place.
OpId ProgramBuilder::new_state(OpId parameter, const char* name, const Dims& sizes, DType dtype, std::vector<OpId> reads,
                               Category category) {
  XlaOp old;
  old.kind = OpKind::argument;
  old.name = name;
  old.scope = op(parameter).scope;
  old.sizes = sizes;
  old.dtype = dtype;
  old.category = category;
  const OpId argument = emit(old);
  program_.arguments.push_back(argument);
  reads.push_back(argument);
  const bool smaller = std::any_of(reads.begin(), reads.end(), [&](OpId r) { return numel(op(r).sizes) > numel(sizes); });
  const OpId next = emit(smaller ? OpKind::reduction : OpKind::elementwise, name, sizes, dtype, std::move(reads));
  program_.ops[next].scope = op(parameter).scope;
  program_.ops[next].category = category;
  program_.outputs.push_back({next, argument});
  return next;
}

std::vector<OpId> ProgramBuilder::optimizer_states(OpId parameter, OpId gradient) {
  const XlaOp p = op(parameter);
  std::vector<OpId> out;
  for (const OptaxState& s : optax_states(job_.optimizer, p.sizes, p.dtype))
    out.push_back(new_state(parameter, s.name, s.sizes, s.dtype, {gradient}, Category::optimizer_state));
  return out;
}

void ProgramBuilder::update(OpId parameter) {
  if (std::find(parameters_.begin(), parameters_.end(), parameter) == parameters_.end() || !updates_parameters(job_.optimizer)) return;
  const Phase outer = std::exchange(phase_, Phase::optimizer);
  const XlaOp p = op(parameter);
  scope_ = p.scope;
  OpId g = clip_scale_ ? gradients_[parameter] : reduced_gradient(parameter);
  if (clip_scale_) g = emit(OpKind::elementwise, "clip", p.sizes, p.dtype, {g, clip_scale_});
  // optax.MultiSteps
  if (job_.accumulation > 1) g = new_state(parameter, "acc_grads", p.sizes, p.dtype, {g}, Category::gradient);
  std::vector<OpId> reads = optimizer_states(parameter, g);
  reads.insert(reads.end(), {g, parameter});
  const OpId next = emit(OpKind::elementwise, "apply_updates", p.sizes, p.dtype, reads);
  program_.ops[next].category = Category::parameter;
  program_.outputs.push_back({next, parameter});
  if (job_.ema) new_state(parameter, "ema", p.sizes, p.dtype, {next}, Category::ema);
  std::erase(parameters_, parameter);
  phase_ = outer;
}

void ProgramBuilder::update_all() {
  phase_ = Phase::optimizer;
  if (!updates_parameters(job_.optimizer)) {  // value_and_grad alone: gradients are results
    for (const OpId p : parameters_) program_.outputs.push_back({reduced_gradient(p), 0});
    return;
  }
  const std::vector<OpId> rest = parameters_;
  if (job_.clip) {
    std::vector<OpId> norms;
    for (const OpId p : rest) {
      gradients_[p] = reduced_gradient(p);
      norms.push_back(emit(OpKind::reduction, "global_norm", {}, DType::float32, {gradients_[p]}));
    }
    clip_scale_ = emit(OpKind::elementwise, "global_norm", {}, DType::float32, std::move(norms));
  }
  for (const OpId p : rest) update(p);
  scope_ = 0;
  if (!optax_states(job_.optimizer, {1}, DType::float32).empty())
    new_state(program_.arguments[0], "count", {}, DType::int32, {}, Category::optimizer_state);
}

}  // namespace plimsoll
