// torch.optim.Adam and AdamW: exp_avg and exp_avg_sq (and max_exp_avg_sq with amsgrad) for every parameter.
#include "optim/optimizers.h"

namespace plimsoll {

namespace {

class Adam final : public Optimizer {
 public:
  Adam(const Config& args, bool decoupled)
      : amsgrad_(args.flag({"amsgrad"}, false)),
        fused_(args.flag({"fused"}, false)),
        foreach_(args.flag({"foreach"}, !fused_)),
        maximize_(args.flag({"maximize"}, false)),
        capturable_(args.flag({"capturable"}, false)),
        adds_decay_(!decoupled && args.number({"weight_decay"}, 0.0) != 0.0) {}

  void step(const std::vector<Parameter*>& all) override {
    const std::vector<Parameter*> parameters = with_gradients(all);
    if (parameters.empty()) return;
    if (states_.empty()) states_.resize(all.size());
    for (size_t i = 0; i < all.size(); ++i)
      if (all[i]->grad && !states_[i].exp_avg) init(states_[i], all[i]->value);
    if (fused_) {
      step_fused(parameters);
    } else if (foreach_) {
      step_foreach(all);
    } else {
      step_loop(all);
    }
  }

  std::vector<Tensor> states() const override {
    std::vector<Tensor> out;
    for (const State& s : states_)
      for (const Tensor& t : {s.step, s.exp_avg, s.exp_avg_sq, s.max_exp_avg_sq})
        if (t) out.push_back(t);
    return out;
  }

 private:
  struct State {
    Tensor step, exp_avg, exp_avg_sq, max_exp_avg_sq;
  };

  void init(State& s, const Tensor& value) const {
    if (fused_ || capturable_) s.step = scalar_zeros(value.tape(), DType::float32);
    s.exp_avg = zeros_like(value);
    s.exp_avg_sq = zeros_like(value);
    if (amsgrad_) s.max_exp_avg_sq = zeros_like(value);
  }

  // One kernel; maximize is an argument of it.
  void step_fused(const std::vector<Parameter*>&) const {}

  void step_foreach(const std::vector<Parameter*>& all) const {
    Tensors grads, squares, steps;
    for (size_t i = 0; i < all.size(); ++i) {
      if (!all[i]->grad) continue;
      grads.push_back(all[i]->grad);
      squares.push_back(states_[i].exp_avg_sq);
      if (states_[i].step) steps.push_back(states_[i].step);
    }
    if (maximize_) grads = foreach("_foreach_neg", grads);
    if (adds_decay_ && !maximize_) grads = foreach("_foreach_add", grads);
    grads.clear();
    Tensors correction1, correction2;
    if (capturable_) {
      correction1 = foreach("_foreach_pow", steps);
      correction2 = foreach("_foreach_pow", steps);
    }
    const Tensors denominators = foreach("_foreach_sqrt", squares);
  }

  void step_loop(const std::vector<Parameter*>& all) const {
    Tensor grad, denominator;
    for (size_t i = 0; i < all.size(); ++i) {
      if (!all[i]->grad) continue;
      grad = maximize_ ? temporary("neg", all[i]->grad) : all[i]->grad;
      if (adds_decay_) grad = temporary("add", grad);
      const Tensor root = temporary("sqrt", states_[i].exp_avg_sq);
      denominator = temporary("div", root);
    }
  }

  bool amsgrad_, fused_, foreach_, maximize_, capturable_, adds_decay_;
  std::vector<State> states_;  // by position in the parameter list
};

}  // namespace

std::unique_ptr<Optimizer> make_adam(const Config& args) { return std::make_unique<Adam>(args, false); }
std::unique_ptr<Optimizer> make_adamw(const Config& args) { return std::make_unique<Adam>(args, true); }

}  // namespace plimsoll
