// torch.optim.Adamax: exp_avg and exp_inf for every parameter.
#include "optim/stateful_optimizer.h"

namespace plimsoll {

namespace {

struct AdamaxState {
  Tensor step, exp_avg, exp_inf;
  Tensors tensors() const { return {step, exp_avg, exp_inf}; }
};

class Adamax final : public StatefulOptimizer<AdamaxState> {
 public:
  explicit Adamax(const Arguments& args)
      : StatefulOptimizer(args.form()),
        capturable_(args.flag("capturable")),
        decay_(args.nonzero("weight_decay")),
        maximize_(args.flag("maximize")) {}

 private:
  void init(State& s, const Parameter& p) override {
    const Tensor& value = p.value;
    if (capturable_) s.step = device_scalar("zeros", value.tape());
    s.exp_avg = zeros_like(value);
    s.exp_inf = zeros_like(value);
  }

  void step_foreach(const std::vector<Parameter*>& all) override {
    Tensors grads, corrections, denominators;
    for (const Positions& group : by_dtype(all)) {
      grads = gradients(all, group);
      if (maximize_) grads = foreach_op("_foreach_neg", grads);
      if (decay_ && !maximize_) grads = foreach_op("_foreach_add", grads);
      if (!maximize_ && !decay_) grads = foreach_op("_foreach_abs", grads);  // else the copy at hand is overwritten
      if (!capturable_) continue;
      corrections = foreach_op("_foreach_pow", each(group, &State::step));
      denominators = foreach_op("_foreach_mul", each(group, &State::exp_inf), corrections);
    }
  }

  void step_loop(const std::vector<Parameter*>& all) override {
    Tensor grad, correction, denominator;
    for (size_t i : with_gradients(all)) {
      grad = all[i]->grad;
      if (maximize_) grad = temporary("neg", grad);
      if (decay_) grad = temporary("add", grad);
      temporary("abs", grad);
      if (!capturable_) continue;
      correction = chain(state(i).step, {"pow", "sub"});
      denominator = temporary("mul", state(i).exp_inf, correction);
    }
  }

  bool capturable_, decay_, maximize_;
};

}  // namespace

extern const OptimizerEntry kAdamax{
    .name = "Adamax",
    .library = "torch.optim",
    .keeps = "2 states a parameter",
    .make = make<Adamax>,
    .forms = {Form::foreach, Form::loop},
    .arguments = {{"betas", {0.9, 0.999}},
                  {"eps", 1e-8},
                  {"weight_decay", 0},
                  {"foreach"},
                  {"maximize", false},
                  {"differentiable", false},
                  {"capturable", false}},
};

}  // namespace plimsoll
