// torch.optim.RMSprop: square_avg for every parameter, momentum_buffer with momentum, grad_avg when centered.
#include "optim/arguments.h"
#include "optim/foreach.h"
#include "optim/optimizers.h"

namespace plimsoll {

namespace {

class RmsProp final : public Optimizer {
 public:
  explicit RmsProp(const Arguments& args)
      : form_(args.form()),
        momentum_(args.nonzero("momentum")),
        centered_(args.flag("centered")),
        capturable_(args.flag("capturable")),
        decay_(args.nonzero("weight_decay")),
        maximize_(args.flag("maximize")) {}

  void step(const std::vector<Parameter*>& all) override {
    states_.resize(all.size());
    for (size_t i : with_gradients(all))
      if (!states_[i].square_avg) init(states_[i], all[i]->value);
    form_ == Form::foreach ? step_foreach(all) : step_loop(all);
  }

  Tensors states() const override {
    Tensors out;
    for (const State& s : states_)
      for (const Tensor& t : {s.step, s.square_avg, s.momentum_buffer, s.grad_avg})
        if (t) out.push_back(t);
    return out;
  }

 private:
  struct State {
    Tensor step, square_avg, momentum_buffer, grad_avg;
  };

  void init(State& s, const Tensor& value) const {
    if (capturable_) s.step = device_scalar("zeros", value.tape());
    s.square_avg = zeros_like(value);
    if (momentum_) s.momentum_buffer = zeros_like(value);
    if (centered_) s.grad_avg = zeros_like(value);
  }

  void step_foreach(const std::vector<Parameter*>& all) const {
    Tensors grads, avg;
    for (const Positions& group : by_dtype(all)) {
      grads = gradients(all, group);
      if (maximize_) grads = foreach_op("_foreach_neg", grads);
      if (decay_ && !maximize_) grads = foreach_op("_foreach_add", grads);
      {
        const Tensors first = redistributed_gradients(all, group), second = redistributed_gradients(all, group);  // _foreach_addcmul_
      }
      if (centered_) redistributed_gradients(all, group);  // _foreach_lerp_
      avg = foreach_op(centered_ ? "_foreach_addcmul" : "_foreach_sqrt", gather(group, [&](size_t i) { return states_[i].square_avg; }));
      redistributed_gradients(all, group);  // _foreach_addcdiv_
    }
  }

  void step_loop(const std::vector<Parameter*>& all) const {
    Tensor grad, avg;
    for (size_t i : with_gradients(all)) {
      grad = all[i]->grad;
      if (maximize_) grad = temporary("neg", grad);
      if (decay_) grad = temporary("add", grad);
      avg = temporary(centered_ ? "addcmul" : "sqrt", states_[i].square_avg);
    }
  }

  Form form_;
  bool momentum_, centered_, capturable_, decay_, maximize_;
  std::vector<State> states_;  // by position in the parameter list
};

}  // namespace

std::unique_ptr<Optimizer> make_rmsprop(const Config& args) {
  return std::make_unique<RmsProp>(
      Arguments("RMSprop", args, {"alpha", "eps", "weight_decay", "momentum", "centered", "capturable", "foreach", "differentiable"}));
}

}  // namespace plimsoll
