// SophiaG (Liuhong99/Sophia, sophia.py): exp_avg and hessian for every parameter, a loop. Every k steps (10 in its recipe) a second
// backward on sampled labels feeds `update_hessian`, which works in place: its pass takes no more than the training step's own.
#include "optim/arguments.h"
#include "optim/foreach.h"
#include "optim/optimizers.h"

namespace plimsoll {

namespace {

class SophiaG final : public Optimizer {
 public:
  explicit SophiaG(const Arguments& args) : maximize_(args.flag("maximize")) {
    if (args.flag("capturable")) args.refuse("capturable true needs a learning rate on the device", "leave capturable out");
  }

  void step(const std::vector<Parameter*>& all) override {
    states_.resize(all.size());
    for (size_t i : with_gradients(all))
      if (!states_[i].exp_avg) states_[i] = {zeros_like(all[i]->value), zeros_like(all[i]->value)};
    Tensor grad, ratio;
    for (size_t i : with_gradients(all)) {
      grad = maximize_ ? temporary("neg", all[i]->grad) : all[i]->grad;
      ratio = clamped_ratio(states_[i]);
      temporary("sign", states_[i].exp_avg);
    }
  }

  Tensors states() const override {
    Tensors out;
    for (const State& s : states_)
      for (const Tensor& t : {s.exp_avg, s.hessian})
        if (t) out.push_back(t);
    return out;
  }

 private:
  struct State {
    Tensor exp_avg, hessian;
  };

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
  std::vector<State> states_;  // by position in the parameter list
};

}  // namespace

std::unique_ptr<Optimizer> make_sophia(const Config& args) {
  return std::make_unique<SophiaG>(Arguments("SophiaG", args, {"betas", "rho", "weight_decay", "capturable"}));
}

}  // namespace plimsoll
