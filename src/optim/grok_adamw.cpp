// GrokAdamW (cognitivecomputations/grokadamw): its three states lie in the host's memory and come to the device for each parameter's
// update, as copies that live until the next parameter's.
#include "optim/stateful_optimizer.h"

namespace plimsoll {

namespace {

struct GrokAdamWState {
  Tensors tensors() const { return {}; }  // none on the device
};

class GrokAdamW final : public StatefulOptimizer<GrokAdamWState> {
 public:
  explicit GrokAdamW(const Arguments& args) : clips_(args.number("gradient_clipping") > 0) {
    if (args.given("grokking_signal_fns"))
      args.refuse("grokking_signal_fns are functions and not simulated", "leave grokking_signal_fns out");
  }

  Bytes on_host() const override { return on_host_; }

 private:
  void init(State&, const Parameter& p) override { on_host_ += Bytes{checked_mul(3, p.value.storage().bytes)}; }

  void step_loop(const std::vector<Parameter*>& all) override {
    Tensor exp_avg, exp_avg_sq, grok_ema, grok_grad;
    for (size_t i : with_gradients(all)) {
      const Tensor& value = all[i]->value;
      Tensor average = temporary("_to_copy", value), square = temporary("_to_copy", value);
      exp_avg = std::move(average), exp_avg_sq = std::move(square);
      grok_ema = temporary("_to_copy", value);
      if (clips_) clip(all[i]->grad);
      {
        const Tensor amplified = temporary("mul", grok_ema);
        grok_grad = temporary("add", amplified);
      }
      temporary("sqrt", exp_avg_sq);
    }
  }

  // torch.nn.utils.clip_grad_norm_ of one tensor
  static void clip(const Tensor& grad) {
    const auto number = [&](const char* op) { return temporary(op, Dims{}, grad.dtype(), grad.tape()); };
    Tensor norm = number("linalg_vector_norm");
    {
      const Tensor stacked = temporary("stack", {1}, grad.dtype(), grad.tape());
      norm = number("linalg_vector_norm");
    }
    Tensor coefficient = number("add");
    for (const char* op : {"reciprocal", "mul", "clamp"}) coefficient = number(op);
  }

  bool clips_;
  Bytes on_host_;
};

}  // namespace

extern const OptimizerEntry kGrokAdamW{
    .name = "GrokAdamW",
    .library = "grokadamw",
    .keeps = "3 states a parameter, in the host's memory",
    .make = make<GrokAdamW>,
    .arguments = {{"betas", {0.9, 0.999}},
                  {"eps", 1e-8},
                  {"weight_decay", 1e-2},
                  {"alpha_init", 0.98},
                  {"lamb", 2.0},
                  {"gamma", 0.1},
                  {"grokking_signal_fns"},
                  {"grokking_signal_decay_rate", 0.1},
                  {"gradient_clipping", 1.0}},
    .transformers = {{"grokadamw"}},
    .optim_args = "gradient_clipping",
};

}  // namespace plimsoll
