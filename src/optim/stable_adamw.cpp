// StableAdamW (warner-benjamin/optimi, torch-optimi 0.3): exp_avg and exp_avg_sq for every parameter, and for half-precision ones the
// compensation of Kahan's summation. Triton kernels update in place and are the default on devices with bf16; `triton: false` is the
// loop, `foreach: true` the form of that name.
#include "optim/arguments.h"
#include "optim/foreach.h"
#include "optim/optimizers.h"

namespace plimsoll {

namespace {

class StableAdamW final : public Optimizer {
 public:
  explicit StableAdamW(const Arguments& args) : kahan_(args.flag("kahan_sum", true)) {
    const bool chosen = args.config().find({"triton"}) || args.config().find({"foreach"});
    if (args.flag("gradient_release")) args.refuse("gradient_release true is not simulated", "set optimizer_in_backward instead");
    form_ = args.flag("triton", !chosen) ? Form::fused : args.flag("foreach") ? Form::foreach : Form::loop;
  }

  void step(const std::vector<Parameter*>& all) override {
    states_.resize(all.size());
    const Positions active = with_gradients(all);
    for (size_t i : active)
      if (!states_[i].exp_avg) init(states_[i], all[i]->value);
    if (form_ == Form::loop)
      for (size_t i : active) step_one(states_[i], all[i]->grad);
    if (form_ == Form::foreach)
      for (const Positions& group : by_dtype(all)) step_all(all, group);
  }

  Tensors states() const override {
    Tensors out;
    for (const State& s : states_)
      for (const Tensor& t : {s.exp_avg, s.exp_avg_sq, s.eps_sq, s.kahan_comp, s.mean_square})
        if (t) out.push_back(t);
    return out;
  }

 private:
  struct State {
    Tensor exp_avg, exp_avg_sq, eps_sq, kahan_comp, mean_square;
  };

  void init(State& s, const Tensor& value) const {
    Tape& tape = value.tape();
    s.exp_avg = zeros_like(value);
    s.exp_avg_sq = zeros_like(value);
    s.eps_sq = temporary("_to_copy", Dims{}, value.dtype(), tape);
    if (kahan_ && is_half(value.dtype()))
      s.kahan_comp = zeros_like(value);
    else if (form_ == Form::fused)
      s.kahan_comp = temporary("zeros", {1}, DType::uint8, tape);
    if (form_ == Form::fused) s.mean_square = temporary("zeros", {1}, DType::float32, tape);
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

  void step_all(const std::vector<Parameter*>& all, const Positions& group) const {
    foreach_op("maximum", gather(group, [&](size_t i) { return states_[i].exp_avg_sq; }));
    for (const Tensor& grad : gradients(all, group)) {
      const Tensor mean = number("mean", grad);
      number("sqrt", grad);
    }
  }

  bool kahan_;
  Form form_ = Form::fused;
  std::vector<State> states_;  // by position in the parameter list
};

}  // namespace

std::unique_ptr<Optimizer> make_stable_adamw(const Config& args) {
  return std::make_unique<StableAdamW>(
      Arguments("StableAdamW", args,
                {"betas", "weight_decay", "eps", "decouple_lr", "max_lr", "kahan_sum", "foreach", "triton", "gradient_release"}, false));
}

}  // namespace plimsoll
