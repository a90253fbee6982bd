// StableAdamW (warner-benjamin/optimi, torch-optimi 0.3): exp_avg and exp_avg_sq for every parameter, and for half-precision ones the
// compensation of Kahan's summation. Triton kernels update in place and are the default on devices with bf16; `triton: false` is the
// loop, `foreach: true` the form of that name.
#include "optim/stateful_optimizer.h"

namespace plimsoll {

namespace {

struct StableAdamWState {
  Tensor exp_avg, exp_avg_sq, eps_sq, kahan_comp, mean_square;
  Tensors tensors() const { return {exp_avg, exp_avg_sq, eps_sq, kahan_comp, mean_square}; }
};

class StableAdamW final : public StatefulOptimizer<StableAdamWState> {
 public:
  explicit StableAdamW(const Arguments& args) : StatefulOptimizer(form_of(args)), kahan_(args.flag("kahan_sum")) {
    if (args.flag("gradient_release")) args.refuse("gradient_release true is not simulated", "set optimizer_in_backward instead");
  }

  bool supports_amp_scaling() const override { return false; }

 private:
  // Triton's kernels are the fused form.
  static Form form_of(const Arguments& args) {
    const bool chosen = args.given("triton") || args.given("foreach");
    return !chosen || args.flag("triton") ? Form::fused : args.flag("foreach") ? Form::foreach : Form::loop;
  }

  void init(State& s, const Parameter& p) override {
    const Tensor& value = p.value;
    Tape& tape = value.tape();
    s.exp_avg = zeros_like(value);
    s.exp_avg_sq = zeros_like(value);
    s.eps_sq = temporary("_to_copy", Dims{}, value.dtype(), tape);
    if (kahan_ && is_half(value.dtype()))
      s.kahan_comp = zeros_like(value);
    else if (form() == Form::fused)
      s.kahan_comp = temporary("zeros", {1}, DType::uint8, tape);
    if (form() == Form::fused) s.mean_square = temporary("zeros", {1}, DType::float32, tape);
  }

  static Tensor number(const char* op, const Tensor& like) { return temporary(op, Dims{}, like.dtype(), like.tape()); }

  // rms = grad.pow(2).div_(exp_avg_sq.maximum(eps_sq)).mean().sqrt()
  static void step_one(const State& s, const Tensor& grad) {
    Tensor rms;
    {
      const Tensor square = temporary("pow", grad);
      temporary("maximum", s.exp_avg_sq);
      rms = number("mean", grad);
    }
    rms = number("sqrt", grad);
    temporary("sqrt", s.exp_avg_sq);
  }

  void step_loop(const std::vector<Parameter*>& all) override {
    for (size_t i : with_gradients(all)) step_one(state(i), all[i]->grad);
  }

  void step_foreach(const std::vector<Parameter*>& all) override {
    for (const Positions& group : by_dtype(all)) {
      foreach_op("maximum", each(group, &State::exp_avg_sq));
      for (const Tensor& grad : gradients(all, group)) {
        const Tensor mean = number("mean", grad);
        number("sqrt", grad);
      }
    }
  }

  bool kahan_;
};

}  // namespace

extern const OptimizerEntry kStableAdamW{
    .name = "StableAdamW",
    .library = "torch-optimi",
    .keeps = "2 states a parameter, 3 of half-precision ones",
    .make = make<StableAdamW>,
    .forms = {Form::fused, Form::foreach, Form::loop},
    .arguments = {{"betas", {0.9, 0.99}},
                  {"weight_decay", 1e-2},
                  {"eps", 1e-6},
                  {"decouple_lr", false},
                  {"max_lr"},
                  {"kahan_sum", true},
                  {"foreach"},
                  {"triton"},
                  {"gradient_release", false}},
    .transformers = {{"stable_adamw"}},
};

}  // namespace plimsoll
