// torch.optim.SGD: nothing, or one momentum buffer for every parameter, made from the first gradient.
#include "optim/arguments.h"
#include "optim/foreach.h"
#include "optim/optimizers.h"

namespace plimsoll {

namespace {

class Sgd final : public Optimizer {
 public:
  explicit Sgd(const Arguments& args)
      : form_(args.form()),
        momentum_(args.nonzero("momentum")),
        nesterov_(args.flag("nesterov")),
        decay_(args.nonzero("weight_decay")),
        maximize_(args.flag("maximize")) {
    if (nesterov_ && (!momentum_ || args.nonzero("dampening")))
      args.refuse("nesterov needs a momentum and no dampening", "set momentum above 0 and leave dampening out");
  }

  void step(const std::vector<Parameter*>& all) override {
    buffers_.resize(all.size());
    switch (form_) {
      case Form::foreach: return step_foreach(all);
      case Form::loop: return step_loop(all);
      case Form::fused: return step_fused(all);
    }
  }

  Tensors states() const override {
    Tensors out;
    for (const Tensor& b : buffers_)
      if (b) out.push_back(b);
    return out;
  }

  bool supports_amp_scaling() const override { return form_ == Form::fused; }

 private:
  void step_foreach(const std::vector<Parameter*>& all) {
    Tensors grads;
    for (const Positions& group : by_dtype(all)) {
      grads = gradients(all, group);
      if (maximize_) grads = foreach_op("_foreach_neg", grads);
      if (decay_ && !maximize_) grads = foreach_op("_foreach_add", grads);
      for (size_t k = 0; k < group.size() && momentum_; ++k)
        if (Tensor& buffer = buffers_[group[k]]; !buffer) buffer = temporary("clone", grads[k]);
      if (momentum_ && !nesterov_) grads.clear();  // the buffers take the name
      redistributed_gradients(all, group);         // _foreach_add_ of what has their placement
    }
  }

  void step_loop(const std::vector<Parameter*>& all) {
    Tensor grad;
    for (size_t i : with_gradients(all)) {
      grad = maximize_ ? temporary("neg", all[i]->grad) : all[i]->grad;
      if (decay_) grad = temporary("add", grad);
      if (!momentum_) continue;
      if (!buffers_[i]) buffers_[i] = temporary("clone", grad);
      grad = nesterov_ ? temporary("add", grad) : buffers_[i];
    }
  }

  // One kernel; decay, nesterov and maximize are arguments of it.
  void step_fused(const std::vector<Parameter*>& all) {
    if (!momentum_) return;
    for (size_t i : with_gradients(all))
      if (!buffers_[i]) buffers_[i] = temporary("empty_like", all[i]->grad);
  }

  Form form_;
  bool momentum_, nesterov_, decay_, maximize_;
  Tensors buffers_;  // by position in the parameter list
};

}  // namespace

std::unique_ptr<Optimizer> make_sgd(const Config& args) {
  return std::make_unique<Sgd>(
      Arguments("SGD", args, {"momentum", "dampening", "weight_decay", "nesterov", "foreach", "differentiable", "fused"}));
}

}  // namespace plimsoll
