// lion_pytorch.Lion (lucidrains/lion-pytorch): exp_avg for every parameter, in its type. `foreach: true` is the class of the same name in
// lion_pytorch.foreach, which updates all parameters at once.
#include "optim/arguments.h"
#include "optim/foreach.h"
#include "optim/optimizers.h"

namespace plimsoll {

namespace {

class LionPytorch final : public Optimizer {
 public:
  explicit LionPytorch(const Arguments& args) : form_(args.form(Form::loop)) {
    if (args.flag("use_triton")) args.refuse("use_triton true is not simulated", "leave use_triton out");
  }

  void step(const std::vector<Parameter*>& all) override {
    exp_avg_.resize(all.size());
    const Positions positions = with_gradients(all);
    Tensors updates;
    for (size_t i : positions) {
      if (!exp_avg_[i]) exp_avg_[i] = zeros_like(all[i]->value);
      if (form_ == Form::loop) chain(exp_avg_[i], {"clone", "add"});  // the result becomes the sign in place
    }
    if (form_ == Form::foreach) updates = foreach_op("clone", gather(positions, [&](size_t i) { return exp_avg_[i]; }));
  }

  Tensors states() const override {
    Tensors out;
    for (const Tensor& t : exp_avg_)
      if (t) out.push_back(t);
    return out;
  }

 private:
  Form form_;
  Tensors exp_avg_;  // by position in the parameter list
};

}  // namespace

std::unique_ptr<Optimizer> make_lion_pytorch(const Config& args) {
  return std::make_unique<LionPytorch>(
      Arguments("lion_pytorch.Lion", args, {"betas", "weight_decay", "use_triton", "decoupled_weight_decay", "foreach"}, false));
}

}  // namespace plimsoll
