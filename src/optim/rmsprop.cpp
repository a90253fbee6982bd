// torch.optim.RMSprop: square_avg for every parameter, momentum_buffer with momentum, grad_avg when centered.
#include "optim/stateful_optimizer.h"

namespace plimsoll {

namespace {

struct RmsPropState {
  Tensor step, square_avg, momentum_buffer, grad_avg;
  Tensors tensors() const { return {step, square_avg, momentum_buffer, grad_avg}; }
};

class RmsProp final : public StatefulOptimizer<RmsPropState> {
 public:
  explicit RmsProp(const Arguments& args)
      : StatefulOptimizer(args.form()),
        momentum_(args.nonzero("momentum")),
        centered_(args.flag("centered")),
        capturable_(args.flag("capturable")),
        decay_(args.nonzero("weight_decay")),
        maximize_(args.flag("maximize")) {}

 private:
  void init(State& s, const Parameter& p) override {
    const Tensor& value = p.value;
    if (capturable_) s.step = device_scalar("zeros", value.tape());
    s.square_avg = zeros_like(value);
    if (momentum_) s.momentum_buffer = zeros_like(value);
    if (centered_) s.grad_avg = zeros_like(value);
  }

  void step_foreach(const std::vector<Parameter*>& all) override {
    Tensors grads, avg;
    for (const Positions& group : by_dtype(all)) {
      grads = gradients(all, group);
      if (maximize_) grads = foreach_op("_foreach_neg", grads);
      if (decay_ && !maximize_) grads = foreach_op("_foreach_add", grads);
      {
        const Tensors first = redistributed_gradients(all, group), second = redistributed_gradients(all, group);  // _foreach_addcmul_
      }
      if (centered_) redistributed_gradients(all, group);  // _foreach_lerp_
      avg = foreach_op(centered_ ? "_foreach_addcmul" : "_foreach_sqrt", each(group, &State::square_avg));
      redistributed_gradients(all, group);  // _foreach_addcdiv_
    }
  }

  void step_loop(const std::vector<Parameter*>& all) override {
    Tensor grad, avg;
    for (size_t i : with_gradients(all)) {
      grad = all[i]->grad;
      if (maximize_) grad = temporary("neg", grad);
      if (decay_) grad = temporary("add", grad);
      avg = temporary(centered_ ? "addcmul" : "sqrt", state(i).square_avg);
    }
  }

  bool momentum_, centered_, capturable_, decay_, maximize_;
};

}  // namespace

extern const OptimizerEntry kRmsProp{
    .name = "RMSprop",
    .library = "torch.optim",
    .keeps = "1 state a parameter, 1 more each with momentum and centered",
    .make = make<RmsProp>,
    .forms = {Form::foreach, Form::loop},
    .arguments = {{"alpha", 0.99},
                  {"eps", 1e-8},
                  {"weight_decay", 0},
                  {"momentum", 0},
                  {"centered", false},
                  {"capturable", false},
                  {"foreach"},
                  {"maximize", false},
                  {"differentiable", false}},
    .transformers = {{"rmsprop"}},
};

}  // namespace plimsoll
