// torch.optim.Adamax: exp_avg and exp_inf for every parameter.
#include "optim/arguments.h"
#include "optim/foreach.h"
#include "optim/optimizers.h"

namespace plimsoll {

namespace {

class Adamax final : public Optimizer {
 public:
  explicit Adamax(const Arguments& args)
      : form_(args.form()), capturable_(args.flag("capturable")), decay_(args.nonzero("weight_decay")), maximize_(args.flag("maximize")) {}

  void step(const std::vector<Parameter*>& all) override {
    states_.resize(all.size());
    for (size_t i : with_gradients(all))
      if (!states_[i].exp_avg) init(states_[i], all[i]->value);
    form_ == Form::foreach ? step_foreach(all) : step_loop(all);
  }

  Tensors states() const override {
    Tensors out;
    for (const State& s : states_)
      for (const Tensor& t : {s.step, s.exp_avg, s.exp_inf})
        if (t) out.push_back(t);
    return out;
  }

 private:
  struct State {
    Tensor step, exp_avg, exp_inf;
  };

  void init(State& s, const Tensor& value) const {
    if (capturable_) s.step = device_scalar("zeros", value.tape());
    s.exp_avg = zeros_like(value);
    s.exp_inf = zeros_like(value);
  }

  void step_foreach(const std::vector<Parameter*>& all) const {
    Tensors grads, corrections, denominators;
    for (const Positions& group : by_dtype(all)) {
      grads = gradients(all, group);
      if (maximize_) grads = foreach_op("_foreach_neg", grads);
      if (decay_ && !maximize_) grads = foreach_op("_foreach_add", grads);
      if (!maximize_ && !decay_) grads = foreach_op("_foreach_abs", grads);  // else the copy at hand is overwritten
      if (!capturable_) continue;
      corrections = foreach_op("_foreach_pow", gather(group, [&](size_t i) { return states_[i].step; }));
      denominators = foreach_op("_foreach_mul", gather(group, [&](size_t i) { return states_[i].exp_inf; }), corrections);
    }
  }

  void step_loop(const std::vector<Parameter*>& all) const {
    Tensor grad, correction, denominator;
    for (size_t i : with_gradients(all)) {
      grad = all[i]->grad;
      if (maximize_) grad = temporary("neg", grad);
      if (decay_) grad = temporary("add", grad);
      temporary("abs", grad);
      if (!capturable_) continue;
      correction = chain(states_[i].step, {"pow", "sub"});
      denominator = temporary("mul", states_[i].exp_inf, correction);
    }
  }

  Form form_;
  bool capturable_, decay_, maximize_;
  std::vector<State> states_;  // by position in the parameter list
};

}  // namespace

std::unique_ptr<Optimizer> make_adamax(const Config& args) {
  return std::make_unique<Adamax>(Arguments("Adamax", args, {"betas", "eps", "weight_decay", "foreach", "differentiable", "capturable"}));
}

}  // namespace plimsoll
