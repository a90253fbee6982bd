// schedulefree (facebookresearch/schedule_free 1.4): z, the point that steps are taken from, for every parameter, and exp_avg_sq but for
// SGD. The gradient is normalised in place, so the denominator is the only temporary.
#include <cmath>

#include "optim/arguments.h"
#include "optim/foreach.h"
#include "optim/optimizers.h"

namespace plimsoll {

namespace {

class ScheduleFree final : public Optimizer {
 public:
  enum class Kind { sgd, adamw, radam };

  ScheduleFree(const Arguments& args, Kind kind)
      : form_(args.form()), kind_(kind), momentum_(args.nonzero("inner_momentum")), beta2_(args.pair("betas", {0.9, 0.999}).second) {}

  void step(const std::vector<Parameter*>& all) override {
    states_.resize(all.size());
    const Positions active = with_gradients(all);
    for (size_t i : active)
      if (!states_[i].z) init(states_[i], all[i]->value);
    if (active.empty() || !divides(all[active[0]]->value.tape())) return;
    form_ == Form::foreach ? step_all(active) : step_each(active);
  }

  Tensors states() const override {
    Tensors out;
    for (const State& s : states_)
      for (const Tensor& t : {s.z, s.exp_avg_sq, s.exp_avg})
        if (t) out.push_back(t);
    return out;
  }

 private:
  struct State {
    Tensor z, exp_avg_sq, exp_avg;
  };

  void init(State& s, const Tensor& value) const {
    s.z = temporary("clone", value);
    if (kind_ != Kind::sgd) s.exp_avg_sq = zeros_like(value);
    if (momentum_) s.exp_avg = zeros_like(value);
  }

  // RAdam's first steps have no denominator: while the length of the approximated average is at most 4.
  bool divides(const Tape& tape) const {
    if (kind_ != Kind::radam) return kind_ == Kind::adamw;
    const double step = step_count(tape), power = std::pow(beta2_, step), longest = 2 / (1 - beta2_) - 1;
    return longest - 2 * step * power / (1 - power) > 4.0;
  }

  void step_all(const Positions& active) const {
    const Tensors denom = foreach_op("div", gather(active, [&](size_t i) { return states_[i].exp_avg_sq; }));
    Tensors normalized;
    if (momentum_) normalized = foreach_op("div", gather(active, [&](size_t i) { return states_[i].exp_avg; }));
  }

  void step_each(const Positions& active) const {
    Tensor denom, normalized;
    for (size_t i : active) {
      denom = temporary("div", states_[i].exp_avg_sq);
      if (momentum_) normalized = temporary("div", states_[i].exp_avg);
    }
  }

  Form form_;
  Kind kind_;
  bool momentum_;
  double beta2_;
  std::vector<State> states_;  // by position in the parameter list
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
