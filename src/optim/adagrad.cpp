// torch.optim.Adagrad: the sum of squares for every parameter, made by the constructor whether or not a gradient ever comes.
#include "optim/arguments.h"
#include "optim/foreach.h"
#include "optim/optimizers.h"

namespace plimsoll {

namespace {

class Adagrad final : public Optimizer {
 public:
  explicit Adagrad(const Arguments& args) : form_(args.form()), decay_(args.nonzero("weight_decay")), maximize_(args.flag("maximize")) {}

  void attach(const std::vector<Parameter*>& all) override {
    states_.resize(all.size());
    for (size_t i = 0; i < all.size(); ++i)
      if (all[i]->value.requires_grad()) init(states_[i], all[i]->value);
  }

  void step(const std::vector<Parameter*>& all) override {
    if (form_ == Form::foreach) step_foreach(all);
    if (form_ == Form::loop) step_loop(all);
    // The fused form is one kernel that takes everything as an argument.
  }

  Tensors states() const override {
    Tensors out;
    for (const State& s : states_)
      for (const Tensor& t : {s.step, s.sum})
        if (t) out.push_back(t);
    return out;
  }

  bool supports_amp_scaling() const override { return form_ == Form::fused; }

 private:
  struct State {
    Tensor step, sum;
  };

  void init(State& s, const Tensor& value) const {
    if (form_ == Form::fused) s.step = device_scalar("zeros", value.tape());
    s.sum = temporary("full_like", value);
  }

  void step_foreach(const std::vector<Parameter*>& all) const {
    Tensors grads, std, numerator;
    for (const Positions& group : by_dtype(all)) {
      grads = gradients(all, group);
      if (maximize_) grads = foreach_op("_foreach_neg", grads);
      if (decay_ && !maximize_) grads = foreach_op("_foreach_add", grads);
      {
        const Tensors first = redistributed_gradients(all, group), second = redistributed_gradients(all, group);  // _foreach_addcmul_
      }
      std = foreach_op("_foreach_sqrt", gather(group, [&](size_t i) { return states_[i].sum; }));
      numerator = decay_ || maximize_ ? grads : foreach_op("_foreach_mul", grads);
      redistributed_gradients(all, group);  // _foreach_addcdiv_, of the numerator
    }
  }

  void step_loop(const std::vector<Parameter*>& all) const {
    Tensor grad, std;
    for (size_t i : with_gradients(all)) {
      grad = all[i]->grad;
      if (maximize_) grad = temporary("neg", grad);
      if (decay_) grad = temporary("add", grad);
      std = temporary("sqrt", states_[i].sum);
    }
  }

  Form form_;
  bool decay_, maximize_;
  std::vector<State> states_;  // by position in the parameter list
};

}  // namespace

std::unique_ptr<Optimizer> make_adagrad(const Config& args) {
  return std::make_unique<Adagrad>(
      Arguments("Adagrad", args, {"lr_decay", "weight_decay", "initial_accumulator_value", "eps", "foreach", "differentiable", "fused"}));
}

}  // namespace plimsoll
