// SophiaG (Liuhong99/Sophia, sophia.py): exp_avg and hessian for every parameter, a loop. Every k steps (10 in its recipe) a second
// backward on sampled labels feeds `update_hessian`, which works in place: its pass takes no more than the training step's own.
#include "optim/stateful_optimizer.h"

namespace plimsoll {

namespace {

struct SophiaGState {
  Tensor exp_avg, hessian;
  Tensors tensors() const { return {exp_avg, hessian}; }
};

class SophiaG final : public StatefulOptimizer<SophiaGState> {
 public:
  explicit SophiaG(const Arguments& args) : maximize_(args.flag("maximize")) {
    if (args.flag("capturable")) args.refuse("capturable true needs a learning rate on the device", "leave capturable out");
  }

 private:
  void init(State& s, const Parameter& p) override {
    s.exp_avg = zeros_like(p.value);
    s.hessian = zeros_like(p.value);
  }

  void step_loop(const std::vector<Parameter*>& all) override {
    Tensor grad, ratio;
    for (size_t i : with_gradients(all)) {
      grad = maximize_ ? temporary("neg", all[i]->grad) : all[i]->grad;
      ratio = clamped_ratio(state(i));
      temporary("sign", state(i).exp_avg);
    }
  }

  // (|exp_avg| / (rho * bs * hessian + epsilon)).clamp(None, 1)
  static Tensor clamped_ratio(const State& s) {
    Tensor quotient;
    {
      const Tensor size = temporary("abs", s.exp_avg);
      const Tensor curvature = chain(s.hessian, {"mul", "add"});
      quotient = temporary("div", size);
    }
    return temporary("clamp", quotient);
  }

  bool maximize_;
};

}  // namespace

extern const OptimizerEntry kSophiaG{
    .name = "SophiaG",
    .library = "Liuhong99/Sophia",
    .keeps = "2 states a parameter",
    .make = make<SophiaG>,
    .arguments = {{"betas", {0.965, 0.99}}, {"rho", 0.04}, {"weight_decay", 0.1}, {"maximize", false}, {"capturable", false}},
};

}  // namespace plimsoll
