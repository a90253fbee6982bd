// torch.optim.Rprop: the previous gradient and a step size for every element of every parameter.
#include "optim/arguments.h"
#include "optim/foreach.h"
#include "optim/optimizers.h"

namespace plimsoll {

namespace {

class Rprop final : public Optimizer {
 public:
  explicit Rprop(const Arguments& args) : form_(args.form()), capturable_(args.flag("capturable")), maximize_(args.flag("maximize")) {}

  void step(const std::vector<Parameter*>& all) override {
    states_.resize(all.size());
    for (size_t i : with_gradients(all))
      if (!states_[i].prev) init(states_[i], *all[i]);
    form_ == Form::foreach ? step_foreach(all) : step_loop(all);
  }

  Tensors states() const override {
    Tensors out;
    for (const State& s : states_)
      for (const Tensor& t : {s.step, s.prev, s.step_size})
        if (t) out.push_back(t);
    return out;
  }

 private:
  struct State {
    Tensor step, prev, step_size;
  };

  void init(State& s, const Parameter& p) const {
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

  void step_foreach(const std::vector<Parameter*>& all) const {
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
        where_scalar(turned, states_[group[k]].prev);
      }
      signs.clear();
      Tensors next = foreach_op("sign", gather(group, [&](size_t i) { return states_[i].prev; }));
      grad_signs = std::move(next);
    }
  }

  void step_loop(const std::vector<Parameter*>& all) const {
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

  Form form_;
  bool capturable_, maximize_;
  std::vector<State> states_;  // by position in the parameter list
};

}  // namespace

std::unique_ptr<Optimizer> make_rprop(const Config& args) {
  return std::make_unique<Rprop>(Arguments("Rprop", args, {"etas", "step_sizes", "capturable", "foreach", "differentiable"}));
}

}  // namespace plimsoll
