// Prodigy (konstmish/prodigy, prodigyopt 1.1): exp_avg, exp_avg_sq, s and the first weights p0 for every parameter; `slice_p` keeps one of
// so many elements of the last two. A parameter that starts as zeros (B of LoRA) has one number for p0; which those are is not known here,
// so all are taken to have the whole.
#include "optim/stateful_optimizer.h"

namespace plimsoll {

namespace {

struct ProdigyState {
  Tensor s, p0, exp_avg, exp_avg_sq;
  Tensors tensors() const { return {s, p0, exp_avg, exp_avg_sq}; }
};

class Prodigy final : public StatefulOptimizer<ProdigyState> {
 public:
  explicit Prodigy(const Arguments& args)
      : StatefulOptimizer(Form::loop, StatesMade::one_by_one), first_moment_(args.pair("betas").first > 0), slice_(args.size("slice_p")) {
    if (args.flag("fsdp_in_use")) args.refuse("fsdp_in_use true is for sharded parameters, which are not simulated", "leave it out");
  }

 private:
  void step_loop(const std::vector<Parameter*>& all) override {
    for (size_t i : with_gradients(all)) {
      const Tensor& value = all[i]->value;
      const ScopeGuard module(value.tape(), value.tape().scope_of(value));
      const State& s = started(all, i);
      {  // torch.dot(gradient, p0 - p).item()
        const Tensor moved = temporary("sub", s.p0);
        number("dot", value);
      }
      const Tensor size = temporary("abs", s.s);
      number("sum", value);
    }
    Tensor denominator;
    for (size_t i : with_gradients(all)) denominator = temporary("sqrt", state(i).exp_avg_sq);
  }

  static Tensor number(const char* op, const Tensor& value) { return temporary(op, Dims{}, value.dtype(), value.tape()); }

  void init(State& s, const Parameter& p) override {
    const Tensor& value = p.value;
    const Dims sliced{(value.numel() + slice_ - 1) / slice_};
    s.s = temporary("zeros_like", sliced, value.dtype(), value.tape());
    temporary("any", Dims{}, DType::bool_, value.tape());
    s.p0 = temporary("clone", sliced, value.dtype(), value.tape());
    if (first_moment_) s.exp_avg = zeros_like(value);
    s.exp_avg_sq = zeros_like(value);
  }

  bool first_moment_;
  int64_t slice_;
};

}  // namespace

extern const OptimizerEntry kProdigy{
    .name = "Prodigy",
    .library = "prodigyopt",
    .keeps = "4 states a parameter; slice_p makes 2 of them smaller",
    .make = make<Prodigy>,
    .arguments = {{"betas", {0.9, 0.999}},
                  {"beta3"},
                  {"eps", 1e-8},
                  {"weight_decay", 0},
                  {"decouple", true},
                  {"use_bias_correction", false},
                  {"safeguard_warmup", false},
                  {"d0", 1e-6},
                  {"d_coef", 1.0},
                  {"growth_rate"},
                  {"fsdp_in_use", false},
                  {"slice_p", 1}},
};

}  // namespace plimsoll
