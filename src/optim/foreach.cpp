#include "optim/foreach.h"

#include <algorithm>
#include <cmath>

namespace plimsoll {

Positions with_gradients(const std::vector<Parameter*>& parameters) {
  Positions out;
  for (size_t i = 0; i < parameters.size(); ++i)
    if (parameters[i]->grad) out.push_back(i);
  return out;
}

std::vector<Positions> by_dtype(const std::vector<Parameter*>& parameters) {
  std::vector<Positions> groups;
  for (size_t i : with_gradients(parameters)) {
    const DType dtype = parameters[i]->value.dtype();
    auto group = std::find_if(groups.begin(), groups.end(), [&](const Positions& g) { return parameters[g[0]]->value.dtype() == dtype; });
    if (group == groups.end()) group = groups.insert(groups.begin(), Positions{});
    group->push_back(i);
  }
  return groups;
}

Tensors gradients(const std::vector<Parameter*>& parameters, const Positions& positions) {
  return gather(positions, [&](size_t i) { return parameters[i]->grad; });
}

Tensors redistributed_gradients(const std::vector<Parameter*>& parameters, const Positions& positions) {
  Tensors out;
  for (size_t i : positions) {
    const Parameter& p = *parameters[i];
    if (p.gradient_placement == GradientPlacement::whole)
      out.push_back(temporary("clone", p.value.sizes(), p.grad.dtype(), p.value.tape()));
    if (p.gradient_placement == GradientPlacement::partial) out.push_back(temporary("all_reduce", p.grad));
  }
  return out;
}

Tensor temporary(const char* name, const Tensor& like) {
  ScopeGuard module(like.tape(), like.tape().scope_of(like));  // states and temporaries belong to their parameter's module
  Op op(like.tape(), name, {});
  op.reads(like);
  return empty_like(like);
}

Tensor temporary(const char* name, const Tensor& a, const Tensor& b) {
  ScopeGuard module(a.tape(), a.tape().scope_of(a));
  DType dtype = promote(a.dtype(), b.dtype());
  if (a.dim() > 0 && b.dim() == 0) dtype = a.dtype();
  if (b.dim() > 0 && a.dim() == 0) dtype = b.dtype();
  return temporary(name, broadcast(a.sizes(), b.sizes()), dtype, a.tape());
}

Tensor temporary(const char* name, const Dims& sizes, DType dtype, Tape& tape) {
  Op op(tape, name, {});
  return empty(tape, sizes, dtype);
}

Tensor chain(Tensor t, std::initializer_list<const char*> ops) {
  for (const char* op : ops) t = temporary(op, t);
  return t;
}

Tensor rdiv(Tensor t) { return chain(t, {"reciprocal", "mul"}); }

Tensors foreach_op(const char* op, const Tensors& like) {
  Tensors out;
  out.reserve(like.size());
  for (const Tensor& t : like) out.push_back(temporary(op, t));
  return out;
}

Tensors foreach_op(const char* op, const Tensors& a, const Tensors& b) {
  Tensors out;
  out.reserve(a.size());
  for (size_t i = 0; i < a.size(); ++i) out.push_back(temporary(op, a[i], b[i]));
  return out;
}

Tensor zeros_like(const Tensor& t) { return temporary("zeros_like", t); }

Tensor device_scalar(const char* op, Tape& tape) { return temporary(op, Dims{}, DType::float32, tape); }

Tensor where_scalar(const Tensor& condition, const Tensor& t) {
  const Tensor number = temporary("scalar_tensor", Dims{}, t.dtype(), t.tape());
  return temporary("where", broadcast(condition.sizes(), t.sizes()), t.dtype(), t.tape());
}

Tensor where_scalars(const Tensor& condition) {
  Tape& tape = condition.tape();
  const Tensor first = device_scalar("scalar_tensor", tape), second = device_scalar("scalar_tensor", tape);
  return temporary("where", condition.sizes(), DType::float32, tape);
}

double step_count(const Tape& tape) {
  constexpr double kLateStep = 1000;  // past every warm-up; ASGD's default t0 of a million steps is not reached
  return tape.dialect.item.value_or(kLateStep);
}

double rectified_length(double beta2, const Tape& tape) {
  const double step = step_count(tape), power = std::pow(beta2, step);
  return 2 / (1 - beta2) - 1 - 2 * step * power / (1 - power);
}

}  // namespace plimsoll
