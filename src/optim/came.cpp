// CAME (yangluo7/CAME, came_pytorch 0.1): Adafactor's factored second moments, a first moment, and factored moments of the instability of
// the updates. A loop over the parameters in fp32; the names of its Python step outlive the parameter they were for.
#include "optim/factored.h"
#include "optim/stateful_optimizer.h"

namespace plimsoll {

namespace {

struct CameState {
  Tensor exp_avg;
  Factors squares, instability;  // or, of vectors:
  Tensor exp_avg_sq;
  Tensor rms;
  Tensors tensors() const { return {exp_avg, squares.row, squares.column, instability.row, instability.column, exp_avg_sq, rms}; }
};

class Came final : public StatefulOptimizer<CameState> {
 public:
  explicit Came(const Arguments&) : StatefulOptimizer(Form::loop, StatesMade::one_by_one) {}

 private:
  void step_loop(const std::vector<Parameter*>& all) override {
    Tensor grad, update, res, res_approx;
    for (size_t i : with_gradients(all)) {
      const Tensor& value = all[i]->value;
      Tape& tape = value.tape();
      const ScopeGuard module(tape, tape.scope_of(value));
      grad = all[i]->grad;
      grad = widened(grad);
      State& s = started(all, i);
      s.rms = rms(value.dtype(), tape);
      update = chain(grad, {"pow", "add"});
      update = s.exp_avg_sq ? temporary("rsqrt", s.exp_avg_sq) : factored_rsqrt(s.squares, grad);
      chain(rms(grad.dtype(), tape), {"div"});  // update.div_((rms / clip_threshold).clamp_(min=1.0))
      res = chain(temporary("sub", update), {"pow", "add"});
      if (!s.exp_avg_sq) res_approx = factored_rsqrt(s.instability, grad);
      update = s.exp_avg_sq ? temporary("clone", s.exp_avg) : res_approx;
      temporary("neg", update);
    }
  }

  // Those of the gradient in fp32.
  void init(State& s, const Parameter& p) override {
    const auto zeros = [&] { return temporary("zeros_like", p.grad.sizes(), DType::float32, p.grad.tape()); };
    s.exp_avg = zeros();
    if (p.grad.dim() < 2) {
      s.exp_avg_sq = zeros();
      return;
    }
    s.squares = zero_factors(s.exp_avg);
    s.instability = zero_factors(s.exp_avg);
  }
};

}  // namespace

extern const OptimizerEntry kCame{
    .name = "CAME",
    .library = "came-pytorch",
    .keeps = "1 fp32 state a parameter; with it 2 rows and 2 columns for matrices, 1 more state for vectors",
    .make = make<Came>,
    .arguments = {{"eps", {1e-30, 1e-16}}, {"clip_threshold", 1.0}, {"betas", {0.9, 0.999, 0.9999}}, {"weight_decay", 0.0}},
};

}  // namespace plimsoll
