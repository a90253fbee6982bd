// torch.optim.Rprop: the previous gradient and a step size for every element of every parameter.
#include "optim/stateful_optimizer.h"

namespace plimsoll {

namespace {

struct RpropState {
  Tensor step, prev, step_size;
  Tensors tensors() const { return {step, prev, step_size}; }
};

class Rprop final : public StatefulOptimizer<RpropState> {
 public:
  explicit Rprop(const Arguments& args)
      : StatefulOptimizer(args.form()), capturable_(args.flag("capturable")), maximize_(args.flag("maximize")) {}

 private:
  void init(State& s, const Parameter& p) override {
    if (capturable_) s.step = device_scalar("zeros", p.value.tape());
    s.prev = zeros_like(p.value);
    s.step_size = temporary("full_like", p.grad);
  }

  static Tensor mask(const char* op, const Tensor& t) { return temporary(op, t.sizes(), DType::bool_, t.tape()); }

  // t[condition] = number. A condition without dimensions is read, and becomes an index when it holds: always under the
  // recorder, and in a run when it is `usual`.
  static void assign_where(const Tensor& condition, bool usual) {
    const std::optional<double>& item = condition.tape().dialect.item;
    if (condition.dim() == 0 && (item ? *item != 0 : usual)) temporary("zeros", {1}, DType::int64, condition.tape());
  }

  // sign[sign > 0] = etaplus and so on, with capturable by torch.where. The first step has sign == 0.
  void choose(const Tensor& sign) const {
    for (const char* op : {"gt", "lt", "eq"}) {
      const Tensor chosen = mask(op, sign);
      if (capturable_) {
        where_scalar(chosen, sign);
      } else {
        assign_where(chosen, op[0] == 'e');
      }
    }
  }

  void step_foreach(const std::vector<Parameter*>& all) override {
    Tensor sign;  // the loop variable outlives the list
    Tensors signs, grad_signs;
    for (const Positions& group : by_dtype(all)) {
      signs = foreach_op("_foreach_mul", gradients(all, group));
      for (const Tensor& s : signs) {
        sign = s;
        choose(sign);
      }
      for (size_t k = 0; k < group.size(); ++k) {
        const Tensor turned = mask("eq", signs[k]);
        where_scalar(turned, state(group[k]).prev);
      }
      signs.clear();
      Tensors next = foreach_op("sign", each(group, &State::prev));
      grad_signs = std::move(next);
    }
  }

  void step_loop(const std::vector<Parameter*>& all) override {
    Tensor grad, sign;
    for (size_t i : with_gradients(all)) {
      grad = all[i]->grad;
      if (maximize_) grad = temporary("neg", grad);
      sign = chain(grad, {"mul", "sign"});
      choose(sign);
      grad = temporary("clone", grad);
      {
        const Tensor turned = mask("eq", sign);
        if (capturable_) {
          where_scalar(turned, grad);
        } else {
          assign_where(turned, false);
        }
      }
      temporary("sign", grad);
    }
  }

  bool capturable_, maximize_;
};

}  // namespace

extern const OptimizerEntry kRprop{
    .name = "Rprop",
    .library = "torch.optim",
    .keeps = "2 states a parameter",
    .make = make<Rprop>,
    .forms = {Form::foreach, Form::loop},
    .arguments = {{"etas", {0.5, 1.2}},
                  {"step_sizes", {1e-6, 50}},
                  {"capturable", false},
                  {"foreach"},
                  {"maximize", false},
                  {"differentiable", false}},
};

}  // namespace plimsoll
