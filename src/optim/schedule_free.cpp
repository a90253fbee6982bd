// schedulefree (facebookresearch/schedule_free 1.4): z, the point that steps are taken from, for every parameter, and exp_avg_sq but for
// SGD. The gradient is normalised in place, so the denominator is the only temporary.
#include "optim/optimizers.h"
#include "optim/stateful_optimizer.h"

namespace plimsoll {

namespace {

struct ScheduleFreeState {
  Tensor z, exp_avg_sq, exp_avg;
  Tensors tensors() const { return {z, exp_avg_sq, exp_avg}; }
};

class ScheduleFree final : public StatefulOptimizer<ScheduleFreeState> {
 public:
  enum class Kind { sgd, adamw, radam };

  ScheduleFree(const Arguments& args, Kind kind)
      : StatefulOptimizer(args.form()),
        kind_(kind),
        momentum_(args.nonzero("inner_momentum")),
        beta2_(args.pair("betas", {0.9, 0.999}).second) {}

 private:
  void init(State& s, const Parameter& p) override {
    const Tensor& value = p.value;
    s.z = temporary("clone", value);
    if (kind_ != Kind::sgd) s.exp_avg_sq = zeros_like(value);
    if (momentum_) s.exp_avg = zeros_like(value);
  }

  // RAdam's first steps have no denominator: while the length of the approximated average is at most 4.
  bool divides(const Positions& active, const std::vector<Parameter*>& all) const {
    if (active.empty() || kind_ != Kind::radam) return kind_ == Kind::adamw;
    return rectified_length(beta2_, all[active[0]]->value.tape()) > 4.0;
  }

  void step_foreach(const std::vector<Parameter*>& all) override {
    const Positions active = with_gradients(all);
    if (!divides(active, all)) return;
    const Tensors denom = foreach_op("div", each(active, &State::exp_avg_sq));
    Tensors normalized;
    if (momentum_) normalized = foreach_op("div", each(active, &State::exp_avg));
  }

  void step_loop(const std::vector<Parameter*>& all) override {
    const Positions active = with_gradients(all);
    if (!divides(active, all)) return;
    Tensor denom, normalized;
    for (size_t i : active) {
      denom = temporary("div", state(i).exp_avg_sq);
      if (momentum_) normalized = temporary("div", state(i).exp_avg);
    }
  }

  Kind kind_;
  bool momentum_;
  double beta2_;
};

}  // namespace

std::unique_ptr<Optimizer> make_sgd_schedule_free(const Config& args) {
  return std::make_unique<ScheduleFree>(
      Arguments("SGDScheduleFree", args, {"momentum", "weight_decay", "warmup_steps", "r", "weight_lr_power", "foreach"}, false),
      ScheduleFree::Kind::sgd);
}

std::unique_ptr<Optimizer> make_adamw_schedule_free(const Config& args) {
  return std::make_unique<ScheduleFree>(
      Arguments("AdamWScheduleFree", args,
                {"betas", "eps", "weight_decay", "warmup_steps", "r", "weight_lr_power", "inner_momentum", "foreach"}, false),
      ScheduleFree::Kind::adamw);
}

std::unique_ptr<Optimizer> make_radam_schedule_free(const Config& args) {
  return std::make_unique<ScheduleFree>(
      Arguments("RAdamScheduleFree", args, {"betas", "eps", "weight_decay", "r", "weight_lr_power", "silent_sgd_phase", "foreach"}, false),
      ScheduleFree::Kind::radam);
}

}  // namespace plimsoll
