// torch.optim.Adafactor: a row and a column of second moments for what has two dimensions or more, the whole second moment
// for vectors. The loop is the default, also on CUDA.
#include "optim/stateful_optimizer.h"

namespace plimsoll {

namespace {

Tensor reduced(const char* op, const Tensor& t, int dim) {
  Dims sizes = t.sizes();
  sizes[dim] = 1;
  return temporary(op, sizes, t.dtype(), t.tape());
}

// t.norm(2).item(): one number on the device for a moment.
void norm_item(const Tensor& t) { temporary("linalg_vector_norm", Dims{}, t.dtype(), t.tape()); }

// row_var @ col_var has the shape of the gradient.
Tensor outer_product(const Tensor& grad) { return temporary(grad.dim() == 2 ? "mm" : "bmm", grad.sizes(), grad.dtype(), grad.tape()); }

struct AdafactorState {
  Tensor row_var, col_var, variance;
  Tensors tensors() const { return {row_var, col_var, variance}; }
};

class Adafactor final : public StatefulOptimizer<AdafactorState> {
 public:
  explicit Adafactor(const Arguments& args) : StatefulOptimizer(args.form()), maximize_(args.flag("maximize")) {}

 private:
  void init(State& s, const Parameter& p) override {
    const Tensor& grad = p.grad;
    if (grad.dim() > 1) {
      s.row_var = reduced("new_zeros", grad, -1);
      s.col_var = reduced("new_zeros", grad, -2);
    } else {
      s.variance = zeros_like(grad);
    }
  }

  void step_loop(const std::vector<Parameter*>& all) override {
    Tensor grad, row_mean, col_mean, grad_squared, var_estimate, update;
    for (size_t i : with_gradients(all)) {
      const State& s = state(i);
      grad = maximize_ ? temporary("neg", all[i]->grad) : all[i]->grad;
      norm_item(all[i]->value);
      if (s.row_var) {
        row_mean = reduced("linalg_vector_norm", grad, -1);
        col_mean = reduced("linalg_vector_norm", grad, -2);
        var_estimate = outer_product(grad);
        reduced("mean", s.row_var, -2);
      } else {
        grad_squared = temporary("mul", grad);
        var_estimate = temporary("clone", s.variance);
      }
      update = var_estimate;  // in place; the estimate before it lives until here
      norm_item(update);
    }
  }

  // Groups of one element type are split once more into factored and not, in the order in which they are met.
  static std::vector<Positions> by_dtype_and_dims(const std::vector<Parameter*>& all) {
    std::vector<Positions> out;
    for (const Positions& group : by_dtype(all)) {
      Positions factored, whole;
      for (size_t i : group) (all[i]->grad.dim() > 1 ? factored : whole).push_back(i);
      const bool factored_first = all[group[0]]->grad.dim() > 1;
      for (const Positions* p : {factored_first ? &factored : &whole, factored_first ? &whole : &factored})
        if (!p->empty()) out.push_back(*p);
    }
    return out;
  }

  void step_foreach(const std::vector<Parameter*>& all) override {
    Tensors grads, var_estimates, updates;
    for (const Positions& group : by_dtype_and_dims(all)) {
      grads = gradients(all, group);
      if (maximize_) grads = foreach_op("_foreach_neg", grads);
      for (size_t i : group) norm_item(all[i]->value);
      if (grads[0].dim() > 1) {
        of_each(grads, [](const Tensor& g) { return reduced("linalg_vector_norm", g, -1); });  // row_means, deleted after use
        of_each(grads, [](const Tensor& g) { return reduced("linalg_vector_norm", g, -2); });  // col_means, deleted after use
        var_estimates = of_each(grads, outer_product);
        const Tensors rows = each(group, &State::row_var);
        of_each(rows, [](const Tensor& r) { return reduced("mean", r, -2); });  // row_var_means, deleted after use
      } else {
        foreach_op("_foreach_mul", grads);  // grads_squared, deleted after use
        var_estimates = foreach_op("clone", each(group, &State::variance));
      }
      updates = var_estimates;
      for (const Tensor& u : updates) norm_item(u);
    }
  }

  template <class F>
  static Tensors of_each(const Tensors& list, F make) {
    Tensors out;
    for (const Tensor& t : list) out.push_back(make(t));
    return out;
  }

  bool maximize_;
};

}  // namespace

extern const OptimizerEntry kAdafactor{
    .name = "Adafactor",
    .library = "torch.optim",
    .keeps = "a row and a column for matrices, 1 state for vectors",
    .make = make<Adafactor>,
    .forms = {Form::loop, Form::foreach},
    .arguments = {{"beta2_decay", -0.8}, {"eps"}, {"d", 1.0}, {"weight_decay", 0.0}, {"foreach"}, {"maximize", false}},
};

}  // namespace plimsoll
