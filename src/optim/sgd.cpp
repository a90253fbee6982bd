// torch.optim.SGD: nothing, or one momentum buffer for every parameter, made from the first gradient.
#include "optim/stateful_optimizer.h"

namespace plimsoll {

namespace {

// The state is the momentum buffer, of the first gradient or of what decay made of it.
class Sgd final : public StatefulOptimizer<Tensor> {
 public:
  explicit Sgd(const Arguments& args)
      : StatefulOptimizer(args.form()),
        momentum_(args.nonzero("momentum")),
        nesterov_(args.flag("nesterov")),
        decay_(args.nonzero("weight_decay")),
        maximize_(args.flag("maximize")) {
    if (nesterov_ && (!momentum_ || args.nonzero("dampening")))
      args.refuse("nesterov needs a momentum and no dampening", "set momentum above 0 and leave dampening out");
  }

 private:
  void step_foreach(const std::vector<Parameter*>& all) override {
    Tensors grads;
    for (const Positions& group : by_dtype(all)) {
      grads = gradients(all, group);
      if (maximize_) grads = foreach_op("_foreach_neg", grads);
      if (decay_ && !maximize_) grads = foreach_op("_foreach_add", grads);
      for (size_t k = 0; k < group.size() && momentum_; ++k)
        if (Tensor& buffer = state(group[k]); !buffer) buffer = temporary("clone", grads[k]);
      if (momentum_ && !nesterov_) grads.clear();  // the buffers take the name
      redistributed_gradients(all, group);         // _foreach_add_ of what has their placement
    }
  }

  void step_loop(const std::vector<Parameter*>& all) override {
    Tensor grad;
    for (size_t i : with_gradients(all)) {
      grad = maximize_ ? temporary("neg", all[i]->grad) : all[i]->grad;
      if (decay_) grad = temporary("add", grad);
      if (!momentum_) continue;
      if (!state(i)) state(i) = temporary("clone", grad);
      grad = nesterov_ ? temporary("add", grad) : state(i);
    }
  }

  // One kernel; decay, nesterov and maximize are arguments of it.
  void step_fused(const std::vector<Parameter*>& all) override {
    if (!momentum_) return;
    for (size_t i : with_gradients(all))
      if (!state(i)) state(i) = temporary("empty_like", all[i]->grad);
  }

  bool momentum_, nesterov_, decay_, maximize_;
};

}  // namespace

extern const OptimizerEntry kSgd{
    .name = "SGD",
    .library = "torch.optim",
    .keeps = "no state, 1 a parameter with momentum",
    .make = make<Sgd>,
    .forms = {Form::foreach, Form::loop, Form::fused},
    .arguments = {{"momentum", 0},
                  {"dampening", 0},
                  {"weight_decay", 0},
                  {"nesterov", false},
                  {"maximize", false},
                  {"foreach"},
                  {"differentiable", false},
                  {"fused"}},
    .transformers = {{"sgd"}},
};

}  // namespace plimsoll
