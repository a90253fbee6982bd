#include "step/parameter_groups.h"

namespace plimsoll {

namespace {

class TwoGroups final : public Optimizer {
 public:
  explicit TwoGroups(const OptimizerSpec& spec)
      : sharded_(make_optimizer(spec.name, spec.args)), plain_(make_optimizer(spec.name, spec.args)) {}

  void attach(const std::vector<Parameter*>& all) override {
    sharded_->attach(part(all, true));
    plain_->attach(part(all, false));
  }
  void step(const std::vector<Parameter*>& all) override {
    sharded_->step(part(all, true));
    plain_->step(part(all, false));
  }
  Tensors states() const override {
    Tensors out = sharded_->states();
    for (const Tensor& s : plain_->states()) out.push_back(s);
    return out;
  }
  bool supports_amp_scaling() const override { return sharded_->supports_amp_scaling(); }

 private:
  static std::vector<Parameter*> part(const std::vector<Parameter*>& all, bool sharded) {
    std::vector<Parameter*> out;
    for (Parameter* p : all)
      if (p->is_dtensor == sharded) out.push_back(p);
    return out;
  }

  std::unique_ptr<Optimizer> sharded_, plain_;
};

}  // namespace

std::unique_ptr<Optimizer> make_two_groups(const OptimizerSpec& spec) { return std::make_unique<TwoGroups>(spec); }

}  // namespace plimsoll
