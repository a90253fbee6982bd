// torch.optim.NAdam: exp_avg and exp_avg_sq for every parameter; capturable keeps step and mu_product on the device.
#include "optim/stateful_optimizer.h"

namespace plimsoll {

namespace {

struct NAdamState {
  Tensor step, mu_product, exp_avg, exp_avg_sq;
  Tensors tensors() const { return {step, mu_product, exp_avg, exp_avg_sq}; }
};

class NAdam final : public StatefulOptimizer<NAdamState> {
 public:
  explicit NAdam(const Arguments& args)
      : StatefulOptimizer(args.form()),
        capturable_(args.flag("capturable")),
        adds_decay_(!args.flag("decoupled_weight_decay") && args.nonzero("weight_decay")),
        maximize_(args.flag("maximize")) {}

 private:
  void init(State& s, const Parameter& p) override {
    const Tensor& value = p.value;
    if (capturable_) {
      s.step = device_scalar("zeros", value.tape());
      s.mu_product = device_scalar("ones", value.tape());
    }
    s.exp_avg = zeros_like(value);
    s.exp_avg_sq = zeros_like(value);
  }

  void step_foreach(const std::vector<Parameter*>& all) override {
    Tensors grads, roots, mus, mu_nexts, step_size_grads, step_size_expavg, numerator;
    for (const Positions& group : by_dtype(all)) {
      grads = gradients(all, group);
      if (maximize_) grads = foreach_op("_foreach_neg", grads);
      if (adds_decay_ && !maximize_) grads = foreach_op("_foreach_add", grads);
      redistributed_gradients(all, group);  // _foreach_lerp_
      {
        const Tensors first = redistributed_gradients(all, group), second = redistributed_gradients(all, group);  // _foreach_addcmul_
      }
      roots = foreach_op("_foreach_sqrt", each(group, &State::exp_avg_sq));
      if (!capturable_) {
        redistributed_gradients(all, group);  // _foreach_addcdiv_
        continue;
      }
      const Tensors steps = each(group, &State::step);
      const Tensors mu_products = each(group, &State::mu_product);
      Tensors exponent = foreach_op("_foreach_mul", steps);
      mus = foreach_op("_foreach_pow", exponent);
      mu_nexts = foreach_op("_foreach_pow", exponent);
      exponent.clear();
      foreach_op("_foreach_pow", steps);        // bias_correction_sqrt, deleted after use
      foreach_op("_foreach_sub", mu_products);  // denom, deleted after use
      step_size_grads = mus;
      foreach_op("_foreach_mul", mu_products);  // denom
      step_size_expavg = mu_nexts;
      numerator = foreach_op("_foreach_mul", step_size_grads, grads);
    }
  }

  void step_loop(const std::vector<Parameter*>& all) override {
    Tensor grad, exp_avg, correction2, mu, mu_next, denominator, mu_product_next;
    for (size_t i : with_gradients(all)) {
      const State& s = state(i);
      grad = maximize_ ? temporary("neg", all[i]->grad) : all[i]->grad;
      exp_avg = s.exp_avg;
      if (capturable_) correction2 = chain(s.step, {"pow", "rsub"});
      if (adds_decay_) grad = temporary("add", grad);
      if (!capturable_) {
        denominator = chain(s.exp_avg_sq, {"div", "sqrt"});
        continue;
      }
      mu = chain(s.step, {"mul", "pow", "mul", "rsub", "mul"});
      mu_next = chain(s.step, {"add", "mul", "pow", "mul", "rsub", "mul"});
      denominator = chain(temporary("div", s.exp_avg_sq, correction2), {"sqrt"});
      denominator = temporary("add", denominator);
      mu_product_next = temporary("mul", mu_next);
      grad = scaled(grad, chain(mu, {"rsub", "mul"}), s.mu_product);
      exp_avg = scaled(exp_avg, chain(mu_next, {"mul"}), mu_product_next);
    }
  }

  // t * (factor / (1 - product))
  static Tensor scaled(const Tensor& t, Tensor factor, const Tensor& product) {
    Tensor quotient;
    {
      const Tensor rest = temporary("rsub", product);
      quotient = temporary("div", factor);
    }
    factor.reset();
    return temporary("mul", t, quotient);
  }

  bool capturable_, adds_decay_, maximize_;
};

}  // namespace

extern const OptimizerEntry kNAdam{
    .name = "NAdam",
    .library = "torch.optim",
    .keeps = "2 states a parameter",
    .make = make<NAdam>,
    .forms = {Form::foreach, Form::loop},
    .arguments = {{"betas", {0.9, 0.999}},
                  {"eps", 1e-8},
                  {"weight_decay", 0},
                  {"momentum_decay", 4e-3},
                  {"decoupled_weight_decay", false},
                  {"foreach"},
                  {"maximize", false},
                  {"capturable", false},
                  {"differentiable", false}},
};

}  // namespace plimsoll
