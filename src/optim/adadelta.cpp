// torch.optim.Adadelta: square_avg and acc_delta for every parameter.
#include "optim/arguments.h"
#include "optim/foreach.h"
#include "optim/optimizers.h"

namespace plimsoll {

namespace {

class Adadelta final : public Optimizer {
 public:
  explicit Adadelta(const Arguments& args)
      : form_(args.form()), capturable_(args.flag("capturable")), decay_(args.nonzero("weight_decay")), maximize_(args.flag("maximize")) {}

  void step(const std::vector<Parameter*>& all) override {
    states_.resize(all.size());
    for (size_t i : with_gradients(all))
      if (!states_[i].square_avg) init(states_[i], all[i]->value);
    form_ == Form::foreach ? step_foreach(all) : step_loop(all);
  }

  Tensors states() const override {
    Tensors out;
    for (const State& s : states_)
      for (const Tensor& t : {s.step, s.square_avg, s.acc_delta})
        if (t) out.push_back(t);
    return out;
  }

 private:
  struct State {
    Tensor step, square_avg, acc_delta;
  };

  void init(State& s, const Tensor& value) const {
    if (capturable_) s.step = device_scalar("zeros", value.tape());
    s.square_avg = zeros_like(value);
    s.acc_delta = zeros_like(value);
  }

  void step_foreach(const std::vector<Parameter*>& all) const {
    Tensors grads, std, deltas;
    for (const Positions& group : by_dtype(all)) {
      grads = gradients(all, group);
      if (maximize_) grads = foreach_op("_foreach_neg", grads);
      if (decay_ && !maximize_) grads = foreach_op("_foreach_add", grads);
      std = foreach_op("_foreach_add", gather(group, [&](size_t i) { return states_[i].square_avg; }));
      deltas = foreach_op("_foreach_add", gather(group, [&](size_t i) { return states_[i].acc_delta; }));
    }
  }

  void step_loop(const std::vector<Parameter*>& all) const {
    Tensor grad, std, delta;
    for (size_t i : with_gradients(all)) {
      grad = all[i]->grad;
      if (maximize_) grad = temporary("neg", grad);
      if (decay_) grad = temporary("add", grad);
      std = temporary("add", states_[i].square_avg);
      delta = temporary("add", states_[i].acc_delta);
    }
  }

  Form form_;
  bool capturable_, decay_, maximize_;
  std::vector<State> states_;  // by position in the parameter list
};

}  // namespace

std::unique_ptr<Optimizer> make_adadelta(const Config& args) {
  return std::make_unique<Adadelta>(Arguments("Adadelta", args, {"rho", "eps", "weight_decay", "foreach", "capturable", "differentiable"}));
}

}  // namespace plimsoll
