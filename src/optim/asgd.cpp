// torch.optim.ASGD: the averaged copy ax for every parameter, and step, eta and mu as scalars on the device.
#include "optim/stateful_optimizer.h"

namespace plimsoll {

namespace {

struct AsgdState {
  Tensor step, eta, mu, ax;
  Tensors tensors() const { return {step, eta, mu, ax}; }
};

class Asgd final : public StatefulOptimizer<AsgdState> {
 public:
  explicit Asgd(const Arguments& args)
      : StatefulOptimizer(args.form()),
        t0_(args.number("t0")),
        capturable_(args.flag("capturable")),
        decay_(args.nonzero("weight_decay")),
        maximize_(args.flag("maximize")) {}

 private:
  void init(State& s, const Parameter& p) override {
    const Tensor& value = p.value;
    Tape& tape = value.tape();
    s.step = device_scalar("zeros", tape);
    s.eta = chain(device_scalar("as_tensor", tape), {"clone"});
    s.mu = device_scalar("ones", tape);
    s.ax = zeros_like(value);
  }

  // lr / ((1 + lambd * lr * step) ** alpha)
  static Tensor new_eta(const Tensor& step) { return rdiv(chain(step, {"mul", "add", "pow"})); }

  void step_foreach(const std::vector<Parameter*>& all) override {
    Tensors grads, intermediate, new_etas, new_mus;
    for (const Positions& group : by_dtype(all)) {
      const Tensors steps = each(group, &State::step);
      grads = gradients(all, group);
      if (maximize_) grads = foreach_op("_foreach_neg", grads);
      intermediate = decay_ && maximize_ ? grads : foreach_op("_foreach_add", grads);
      intermediate.clear();
      foreach_op("_foreach_sub", gather(group, [&](size_t i) { return all[i]->value; }));  // intermediate, deleted after use
      if (capturable_) {
        foreach_op("_foreach_sub", steps);  // new_mus, deleted after use
        new_etas = foreach_op("_foreach_mul", steps);
        continue;
      }
      Tensors etas, mus;
      for (const Tensor& step : steps) etas.push_back(new_eta(step));
      new_etas = std::move(etas);
      for (const Tensor& step : steps) mus.push_back(device_scalar("as_tensor", step.tape()));
      new_mus = std::move(mus);
    }
  }

  void step_loop(const std::vector<Parameter*>& all) override {
    Tensor grad;
    for (size_t i : with_gradients(all)) {
      const State& s = state(i);
      grad = all[i]->grad;
      if (maximize_) grad = temporary("neg", grad);
      if (decay_) grad = temporary("add", grad);
      if (capturable_) chain(s.eta, {"mul", "rsub"});
      if (capturable_ || averaging(s.mu.tape())) temporary("sub", all[i]->value);
      if (!capturable_) continue;
      new_eta(s.step);
      Tensor steps_averaged;
      {
        const Tensor since = temporary("sub", s.step), one = temporary("ones_like", s.step);
        steps_averaged = temporary("maximum", since);
      }
      rdiv(std::move(steps_averaged));
    }
  }

  // mu is 1 until more than one step after t0. The recorder gives its constant for mu itself.
  bool averaging(const Tape& tape) const { return tape.dialect.item ? *tape.dialect.item != 1 : step_count(tape) - t0_ > 1; }

  double t0_;
  bool capturable_, decay_, maximize_;
};

}  // namespace

extern const OptimizerEntry kAsgd{
    .name = "ASGD",
    .library = "torch.optim",
    .keeps = "1 state a parameter",
    .make = make<Asgd>,
    .forms = {Form::foreach, Form::loop},
    .arguments = {{"lambd", 1e-4},
                  {"alpha", 0.75},
                  {"t0", 1e6},
                  {"weight_decay", 0},
                  {"foreach"},
                  {"maximize", false},
                  {"differentiable", false},
                  {"capturable", false}},
};

}  // namespace plimsoll
