// schedulefree (facebookresearch/schedule_free 1.4): z, the point that steps are taken from, for every parameter, and exp_avg_sq but for
// SGD. The gradient is normalised in place, so the denominator is the only temporary.
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
      : StatefulOptimizer(args.form()), kind_(kind), momentum_(args.nonzero("inner_momentum")), beta2_(args.pair("betas").second) {}

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

template <ScheduleFree::Kind kind>
std::unique_ptr<Optimizer> schedule_free(const Arguments& args) {
  return std::make_unique<ScheduleFree>(args, kind);
}

}  // namespace

extern const OptimizerEntry kSgdScheduleFree{
    .name = "SGDScheduleFree",
    .library = "schedulefree",
    .keeps = "1 state a parameter",
    .make = schedule_free<ScheduleFree::Kind::sgd>,
    .forms = {Form::foreach, Form::loop},
    .arguments = {{"momentum", 0.9}, {"weight_decay", 0}, {"warmup_steps", 0}, {"r", 0.0}, {"weight_lr_power", 2.0}, {"foreach"}},
    .transformers = {{"schedule_free_sgd"}},
};

extern const OptimizerEntry kAdamWScheduleFree{
    .name = "AdamWScheduleFree",
    .library = "schedulefree",
    .keeps = "2 states a parameter, 1 more with inner_momentum",
    .make = schedule_free<ScheduleFree::Kind::adamw>,
    .forms = {Form::foreach, Form::loop},
    .arguments = {{"betas", {0.9, 0.999}},
                  {"eps", 1e-8},
                  {"weight_decay", 0},
                  {"warmup_steps", 0},
                  {"r", 0.0},
                  {"weight_lr_power", 2.0},
                  {"inner_momentum", 0.0},
                  {"foreach"}},
    .transformers = {{"schedule_free_adamw"}},
};

extern const OptimizerEntry kRAdamScheduleFree{
    .name = "RAdamScheduleFree",
    .library = "schedulefree",
    .keeps = "2 states a parameter",
    .make = schedule_free<ScheduleFree::Kind::radam>,
    .forms = {Form::foreach, Form::loop},
    .arguments = {{"betas", {0.9, 0.999}},
                  {"eps", 1e-8},
                  {"weight_decay", 0},
                  {"r", 0.0},
                  {"weight_lr_power", 2.0},
                  {"silent_sgd_phase", true},
                  {"foreach"}},
    .transformers = {{"schedule_free_radam"}},
};

}  // namespace plimsoll
