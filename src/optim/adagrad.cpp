// torch.optim.Adagrad: the sum of squares for every parameter, made by the constructor whether or not a gradient ever comes.
#include "optim/stateful_optimizer.h"

namespace plimsoll {

namespace {

struct AdagradState {
  Tensor step, sum;
  Tensors tensors() const { return {step, sum}; }
};

class Adagrad final : public StatefulOptimizer<AdagradState> {
 public:
  explicit Adagrad(const Arguments& args)
      : StatefulOptimizer(args.form(), StatesMade::by_constructor),
        decay_(args.nonzero("weight_decay")),
        maximize_(args.flag("maximize")) {}

 private:
  void init(State& s, const Parameter& p) override {
    const Tensor& value = p.value;
    if (form() == Form::fused) s.step = device_scalar("zeros", value.tape());
    s.sum = temporary("full_like", value);
  }

  void step_foreach(const std::vector<Parameter*>& all) override {
    Tensors grads, std, numerator;
    for (const Positions& group : by_dtype(all)) {
      grads = gradients(all, group);
      if (maximize_) grads = foreach_op("_foreach_neg", grads);
      if (decay_ && !maximize_) grads = foreach_op("_foreach_add", grads);
      {
        const Tensors first = redistributed_gradients(all, group), second = redistributed_gradients(all, group);  // _foreach_addcmul_
      }
      std = foreach_op("_foreach_sqrt", each(group, &State::sum));
      numerator = decay_ || maximize_ ? grads : foreach_op("_foreach_mul", grads);
      redistributed_gradients(all, group);  // _foreach_addcdiv_, of the numerator
    }
  }

  void step_loop(const std::vector<Parameter*>& all) override {
    Tensor grad, std;
    for (size_t i : with_gradients(all)) {
      grad = all[i]->grad;
      if (maximize_) grad = temporary("neg", grad);
      if (decay_) grad = temporary("add", grad);
      std = temporary("sqrt", state(i).sum);
    }
  }

  bool decay_, maximize_;
};

}  // namespace

extern const OptimizerEntry kAdagrad{
    .name = "Adagrad",
    .library = "torch.optim",
    .keeps = "1 state a parameter",
    .make = make<Adagrad>,
    .forms = {Form::foreach, Form::loop, Form::fused},
    .arguments = {{"lr_decay", 0},
                  {"weight_decay", 0},
                  {"initial_accumulator_value", 0},
                  {"eps", 1e-10},
                  {"foreach"},
                  {"maximize", false},
                  {"differentiable", false},
                  {"fused"}},
    .transformers = {{"adagrad"}},
};

}  // namespace plimsoll
