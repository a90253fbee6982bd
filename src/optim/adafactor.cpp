// torch.optim.Adafactor: a row and a column of second moments for what has two dimensions or more, the whole second moment
// for vectors. The loop is the default, also on CUDA.
#include "optim/arguments.h"
#include "optim/foreach.h"
#include "optim/optimizers.h"

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

class Adafactor final : public Optimizer {
 public:
  explicit Adafactor(const Arguments& args) : form_(args.form(Form::loop)), maximize_(args.flag("maximize")) {}

  void step(const std::vector<Parameter*>& all) override {
    states_.resize(all.size());
    for (size_t i : with_gradients(all))
      if (!states_[i].row_var && !states_[i].variance) init(states_[i], all[i]->grad);
    form_ == Form::foreach ? step_foreach(all) : step_loop(all);
  }

  Tensors states() const override {
    Tensors out;
    for (const State& s : states_)
      for (const Tensor& t : {s.row_var, s.col_var, s.variance})
        if (t) out.push_back(t);
    return out;
  }

 private:
  struct State {
    Tensor row_var, col_var, variance;
  };

  static void init(State& s, const Tensor& grad) {
    if (grad.dim() > 1) {
      s.row_var = reduced("new_zeros", grad, -1);
      s.col_var = reduced("new_zeros", grad, -2);
    } else {
      s.variance = zeros_like(grad);
    }
  }

  void step_loop(const std::vector<Parameter*>& all) const {
    Tensor grad, row_mean, col_mean, grad_squared, var_estimate, update;
    for (size_t i : with_gradients(all)) {
      const State& s = states_[i];
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

  void step_foreach(const std::vector<Parameter*>& all) const {
    Tensors grads, var_estimates, updates;
    for (const Positions& group : by_dtype_and_dims(all)) {
      grads = gradients(all, group);
      if (maximize_) grads = foreach_op("_foreach_neg", grads);
      for (size_t i : group) norm_item(all[i]->value);
      if (grads[0].dim() > 1) {
        each(grads, [](const Tensor& g) { return reduced("linalg_vector_norm", g, -1); });  // row_means, deleted after use
        each(grads, [](const Tensor& g) { return reduced("linalg_vector_norm", g, -2); });  // col_means, deleted after use
        var_estimates = each(grads, outer_product);
        const Tensors rows = gather(group, [&](size_t i) { return states_[i].row_var; });
        each(rows, [](const Tensor& r) { return reduced("mean", r, -2); });  // row_var_means, deleted after use
      } else {
        foreach_op("_foreach_mul", grads);  // grads_squared, deleted after use
        var_estimates = foreach_op("clone", gather(group, [&](size_t i) { return states_[i].variance; }));
      }
      updates = var_estimates;
      for (const Tensor& u : updates) norm_item(u);
    }
  }

  template <class F>
  static Tensors each(const Tensors& list, F make) {
    Tensors out;
    for (const Tensor& t : list) out.push_back(make(t));
    return out;
  }

  Form form_;
  bool maximize_;
  std::vector<State> states_;  // by position in the parameter list
};

}  // namespace

std::unique_ptr<Optimizer> make_adafactor(const Config& args) {
  return std::make_unique<Adafactor>(Arguments("Adafactor", args, {"beta2_decay", "eps", "d", "weight_decay", "foreach"}));
}

}  // namespace plimsoll
