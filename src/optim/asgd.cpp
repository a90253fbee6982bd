// torch.optim.ASGD: the averaged copy ax for every parameter, and step, eta and mu as scalars on the device.
#include "optim/arguments.h"
#include "optim/foreach.h"
#include "optim/optimizers.h"

namespace plimsoll {

namespace {

class Asgd final : public Optimizer {
 public:
  explicit Asgd(const Arguments& args)
      : form_(args.form()),
        t0_(args.number("t0", 1e6)),
        capturable_(args.flag("capturable")),
        decay_(args.nonzero("weight_decay")),
        maximize_(args.flag("maximize")) {}

  void step(const std::vector<Parameter*>& all) override {
    states_.resize(all.size());
    for (size_t i : with_gradients(all))
      if (!states_[i].ax) init(states_[i], all[i]->value);
    form_ == Form::foreach ? step_foreach(all) : step_loop(all);
  }

  Tensors states() const override {
    Tensors out;
    for (const State& s : states_)
      for (const Tensor& t : {s.step, s.eta, s.mu, s.ax})
        if (t) out.push_back(t);
    return out;
  }

 private:
  struct State {
    Tensor step, eta, mu, ax;
  };

  static void init(State& s, const Tensor& value) {
    Tape& tape = value.tape();
    s.step = device_scalar("zeros", tape);
    s.eta = chain(device_scalar("as_tensor", tape), {"clone"});
    s.mu = device_scalar("ones", tape);
    s.ax = zeros_like(value);
  }

  // lr / ((1 + lambd * lr * step) ** alpha)
  static Tensor new_eta(const Tensor& step) { return rdiv(chain(step, {"mul", "add", "pow"})); }

  void step_foreach(const std::vector<Parameter*>& all) const {
    Tensors grads, intermediate, new_etas, new_mus;
    for (const Positions& group : by_dtype(all)) {
      const Tensors steps = gather(group, [&](size_t i) { return states_[i].step; });
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

  void step_loop(const std::vector<Parameter*>& all) const {
    Tensor grad;
    for (size_t i : with_gradients(all)) {
      const State& s = states_[i];
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

  Form form_;
  double t0_;
  bool capturable_, decay_, maximize_;
  std::vector<State> states_;  // by position in the parameter list
};

}  // namespace

std::unique_ptr<Optimizer> make_asgd(const Config& args) {
  return std::make_unique<Asgd>(
      Arguments("ASGD", args, {"lambd", "alpha", "t0", "weight_decay", "foreach", "differentiable", "capturable"}));
}

}  // namespace plimsoll
