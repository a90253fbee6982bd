#include "optim/optimizer.h"
#include "optim/optimizers.h"
#include "util/text.h"

namespace plimsoll {

const std::vector<OptimizerEntry>& optimizer_registry() {
  static const std::vector<OptimizerEntry> kOptimizers{
      {"AdamW", "2 states a parameter (3 with amsgrad)", make_adamw},
      {"Adam", "2 states a parameter (3 with amsgrad)", make_adam},
  };
  return kOptimizers;
}

std::unique_ptr<Optimizer> make_optimizer(const std::string& name, const Config& args) {
  std::vector<std::string> names;
  for (const OptimizerEntry& e : optimizer_registry()) {
    if (lower(e.name) == lower(name)) return e.make(args);
    names.emplace_back(e.name);
  }
  throw Error("[optimizer] '" + name + "' is not known", did_you_mean(name, names));
}

std::vector<Parameter*> with_gradients(const std::vector<Parameter*>& parameters) {
  std::vector<Parameter*> out;
  for (Parameter* p : parameters)
    if (p->grad) out.push_back(p);
  return out;
}

Tensor zeros_like(const Tensor& t) { return temporary("zeros_like", t); }

Tensor scalar_zeros(Tape& tape, DType dtype) {
  Op op(tape, "zeros", {});
  return empty(tape, {}, dtype);
}

Tensor temporary(const char* name, const Tensor& like) {
  Op op(like.tape(), name, {});
  return empty_like(like);
}

Tensors foreach(const char* name, const Tensors& like) {
  Tensors out;
  out.reserve(like.size());
  for (const Tensor& t : like) out.push_back(temporary(name, t));
  return out;
}

}  // namespace plimsoll
