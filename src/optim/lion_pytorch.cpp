// lion_pytorch.Lion (lucidrains/lion-pytorch): exp_avg for every parameter, in its type. `foreach: true` is the class of the same name in
// lion_pytorch.foreach, which updates all parameters at once.
#include "optim/stateful_optimizer.h"

namespace plimsoll {

namespace {

class LionPytorch final : public StatefulOptimizer<Tensor> {
 public:
  explicit LionPytorch(const Arguments& args) : StatefulOptimizer(args.form(), StatesMade::one_by_one) {
    if (args.flag("use_triton")) args.refuse("use_triton true is not simulated", "leave use_triton out");
  }

 private:
  void init(Tensor& exp_avg, const Parameter& p) override { exp_avg = zeros_like(p.value); }

  void step_foreach(const std::vector<Parameter*>& all) override {
    foreach_op("clone", gather(with_gradients(all), [&](size_t i) { return started(all, i); }));
  }

  void step_loop(const std::vector<Parameter*>& all) override {
    for (size_t i : with_gradients(all)) chain(started(all, i), {"clone", "add"});  // the result becomes the sign in place
  }
};

}  // namespace

extern const OptimizerEntry kLionPytorch{
    .name = "lion_pytorch.Lion",
    .library = "lion-pytorch",
    .keeps = "1 state a parameter",
    .make = make<LionPytorch>,
    .forms = {Form::loop, Form::foreach},
    .arguments = {{"betas", {0.9, 0.99}}, {"weight_decay", 0.0}, {"use_triton", false}, {"decoupled_weight_decay", false}, {"foreach"}},
};

}  // namespace plimsoll
