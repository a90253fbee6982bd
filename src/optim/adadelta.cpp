// torch.optim.Adadelta: square_avg and acc_delta for every parameter.
#include "optim/stateful_optimizer.h"

namespace plimsoll {

namespace {

struct AdadeltaState {
  Tensor step, square_avg, acc_delta;
  Tensors tensors() const { return {step, square_avg, acc_delta}; }
};

class Adadelta final : public StatefulOptimizer<AdadeltaState> {
 public:
  explicit Adadelta(const Arguments& args)
      : StatefulOptimizer(args.form()),
        capturable_(args.flag("capturable")),
        decay_(args.nonzero("weight_decay")),
        maximize_(args.flag("maximize")) {}

 private:
  void init(State& s, const Parameter& p) override {
    const Tensor& value = p.value;
    if (capturable_) s.step = device_scalar("zeros", value.tape());
    s.square_avg = zeros_like(value);
    s.acc_delta = zeros_like(value);
  }

  void step_foreach(const std::vector<Parameter*>& all) override {
    Tensors grads, std, deltas;
    for (const Positions& group : by_dtype(all)) {
      grads = gradients(all, group);
      if (maximize_) grads = foreach_op("_foreach_neg", grads);
      if (decay_ && !maximize_) grads = foreach_op("_foreach_add", grads);
      std = foreach_op("_foreach_add", each(group, &State::square_avg));
      deltas = foreach_op("_foreach_add", each(group, &State::acc_delta));
    }
  }

  void step_loop(const std::vector<Parameter*>& all) override {
    Tensor grad, std, delta;
    for (size_t i : with_gradients(all)) {
      grad = all[i]->grad;
      if (maximize_) grad = temporary("neg", grad);
      if (decay_) grad = temporary("add", grad);
      std = temporary("add", state(i).square_avg);
      delta = temporary("add", state(i).acc_delta);
    }
  }

  bool capturable_, decay_, maximize_;
};

}  // namespace

extern const OptimizerEntry kAdadelta{
    .name = "Adadelta",
    .library = "torch.optim",
    .keeps = "2 states a parameter",
    .make = make<Adadelta>,
    .forms = {Form::foreach, Form::loop},
    .arguments = {{"rho", 0.9},
                  {"eps", 1e-6},
                  {"weight_decay", 0},
                  {"foreach"},
                  {"capturable", false},
                  {"maximize", false},
                  {"differentiable", false}},
};

}  // namespace plimsoll
