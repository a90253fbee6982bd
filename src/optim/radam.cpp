// torch.optim.RAdam: exp_avg and exp_avg_sq for every parameter.
#include "optim/stateful_optimizer.h"

namespace plimsoll {

namespace {

struct RAdamState {
  Tensor step, exp_avg, exp_avg_sq;
  Tensors tensors() const { return {step, exp_avg, exp_avg_sq}; }
};

class RAdam final : public StatefulOptimizer<RAdamState> {
 public:
  explicit RAdam(const Arguments& args)
      : StatefulOptimizer(args.form()),
        beta2_(args.pair("betas").second),
        capturable_(args.flag("capturable")),
        adds_decay_(!args.flag("decoupled_weight_decay") && args.nonzero("weight_decay")),
        maximize_(args.flag("maximize")) {}

 private:
  void init(State& s, const Parameter& p) override {
    const Tensor& value = p.value;
    if (capturable_) s.step = device_scalar("zeros", value.tape());
    s.exp_avg = zeros_like(value);
    s.exp_avg_sq = zeros_like(value);
  }

  // The variance is rectified, in the default betas from the sixth step on.
  bool rectified(const Tape& tape) const { return rectified_length(beta2_, tape) > 5; }

  void step_foreach(const std::vector<Parameter*>& all) override {
    Tensors grads, correction1, correction2, unrect_step_size, buffer;
    for (const Positions& group : by_dtype(all)) {
      const Tensors steps = each(group, &State::step);
      grads = gradients(all, group);
      if (maximize_) grads = foreach_op("_foreach_neg", grads);
      if (capturable_) {
        correction1 = foreach_op("_foreach_pow", steps);
        correction2 = foreach_op("_foreach_pow", steps);  // becomes rho_t
      }
      if (adds_decay_ && !maximize_) grads = foreach_op("_foreach_add", grads);
      grads.clear();
      if (capturable_) {
        Tensors rect = rectification(correction2);
        Tensors sizes;
        for (const Tensor& r : rect) {
          const Tensor positive = temporary("gt", r.sizes(), DType::bool_, r.tape());
          sizes.push_back(where_scalars(positive));
        }
        unrect_step_size = std::move(sizes);
        correction1 = foreach_op("_foreach_pow", steps);
        correction2 = foreach_op("_foreach_pow", steps);
        rect.clear();
        correction1.clear();
      }
      buffer = foreach_op("_foreach_sqrt", each(group, &State::exp_avg_sq));
    }
  }

  static Tensors rectification(const Tensors& rho) {
    const Tensors num = foreach_op("_foreach_sub", rho);
    foreach_op("_foreach_sub", rho);  // sub2, deleted after use
    foreach_op("_foreach_mul", rho);  // denom, deleted after use
    Tensors rect;
    for (const Tensor& n : num) {
      const Tensor large = temporary("gt", n.sizes(), DType::bool_, n.tape());
      rect.push_back(where_scalar(large, n));
    }
    return rect;
  }

  void step_loop(const std::vector<Parameter*>& all) override {
    Tensor grad, correction1, correction2, corrected, rho, update;
    for (size_t i : with_gradients(all)) {
      const State& s = state(i);
      grad = maximize_ ? temporary("neg", all[i]->grad) : all[i]->grad;
      if (adds_decay_) grad = temporary("add", grad);
      if (!capturable_) {
        corrected = temporary("div", s.exp_avg);
        add_step(s, corrected);
        continue;
      }
      correction1 = chain(s.step, {"pow", "rsub"});
      correction2 = chain(s.step, {"pow", "rsub"});
      corrected = temporary("div", s.exp_avg, correction1);
      rho = length(s.step);
      update = capturable_update(s, rho, correction2);
      const Tensor scaled = temporary("mul", corrected);
      temporary("mul", scaled, update);
    }
  }

  // param.add_(corrected * lr [* adaptive_lr * rect])
  void add_step(const State& s, const Tensor& corrected) const {
    Tensor scaled = temporary("mul", corrected);
    if (!rectified(scaled.tape())) return;
    Tensor adaptive = rdiv(temporary("sqrt", s.exp_avg_sq));
    scaled = temporary("mul", scaled);
    adaptive.reset();
    temporary("mul", scaled);
  }

  // rho_inf - 2 * step * beta2**step / bias_correction2
  static Tensor length(const Tensor& step) {
    Tensor product;
    {
      const Tensor twice = temporary("mul", step);
      const Tensor power = temporary("pow", step);
      product = temporary("mul", twice);
    }
    return chain(std::move(product), {"div", "rsub"});
  }

  // where(rho_t > 5, rect * adaptive_lr, 1)
  static Tensor capturable_update(const State& s, const Tensor& rho, const Tensor& correction2) {
    const Tensor large = temporary("gt", rho.sizes(), DType::bool_, rho.tape());
    Tensor rect;
    {
      const Tensor first = temporary("sub", rho), second = temporary("sub", rho);
      rect = temporary("mul", first);
    }
    rect = temporary("mul", rect);
    {
      const Tensor below = temporary("mul", rho);
      rect = temporary("div", rect);
    }
    rect = temporary("pow", rect);
    Tensor adaptive;
    {
      const Tensor root = temporary("sqrt", s.exp_avg_sq);
      const Tensor power = temporary("pow", correction2);
      adaptive = temporary("div", power, root);
    }
    Tensor product = temporary("mul", rect, adaptive);
    rect.reset();
    adaptive.reset();
    return where_scalar(large, product);
  }

  double beta2_;
  bool capturable_, adds_decay_, maximize_;
};

}  // namespace

extern const OptimizerEntry kRAdam{
    .name = "RAdam",
    .library = "torch.optim",
    .keeps = "2 states a parameter",
    .make = make<RAdam>,
    .forms = {Form::foreach, Form::loop},
    .arguments = {{"betas", {0.9, 0.999}},
                  {"eps", 1e-8},
                  {"weight_decay", 0},
                  {"decoupled_weight_decay", false},
                  {"foreach"},
                  {"maximize", false},
                  {"capturable", false},
                  {"differentiable", false}},
};

}  // namespace plimsoll
