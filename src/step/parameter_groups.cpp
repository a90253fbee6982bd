#include "step/parameter_groups.h"

#include <set>

namespace plimsoll {

namespace {

// While it lives, the parameters outside a group have no gradient, so that a step passes them by.
class OnlyOneGroup {
 public:
  OnlyOneGroup(const std::vector<Parameter*>& all, const std::vector<Parameter*>& group) {
    const std::set<const Parameter*> own(group.begin(), group.end());
    for (Parameter* p : all)
      if (!own.contains(p)) hidden_.emplace_back(p, std::move(p->grad));
  }
  ~OnlyOneGroup() {
    for (auto& [p, grad] : hidden_) p->grad = std::move(grad);
  }

 private:
  std::vector<std::pair<Parameter*, Tensor>> hidden_;
};

class GroupedOptimizer final : public Optimizer {
 public:
  GroupedOptimizer(std::unique_ptr<Optimizer> optimizer, std::vector<std::vector<Parameter*>> groups)
      : optimizer_(std::move(optimizer)), groups_(std::move(groups)) {}

  void know_linear_layers(const std::vector<LinearWeight>& layers) override { optimizer_->know_linear_layers(layers); }
  void attach(const std::vector<Parameter*>& all) override { optimizer_->attach(all); }
  void step(const std::vector<Parameter*>& all) override {
    for (const std::vector<Parameter*>& group : groups_) {
      const OnlyOneGroup others_hidden(all, group);
      optimizer_->step(all);
    }
  }
  Tensors states() const override { return optimizer_->states(); }
  Bytes managed() const override { return optimizer_->managed(); }
  Bytes on_host() const override { return optimizer_->on_host(); }
  bool supports_amp_scaling() const override { return optimizer_->supports_amp_scaling(); }

 private:
  std::unique_ptr<Optimizer> optimizer_;
  std::vector<std::vector<Parameter*>> groups_;
};

}  // namespace

std::unique_ptr<Optimizer> by_groups(std::unique_ptr<Optimizer> optimizer, std::vector<std::vector<Parameter*>> groups) {
  return std::make_unique<GroupedOptimizer>(std::move(optimizer), std::move(groups));
}

std::vector<std::vector<Parameter*>> dtensors_first(const std::vector<Parameter*>& all) {
  std::vector<std::vector<Parameter*>> groups(2);
  for (Parameter* p : all) groups[p->is_dtensor ? 0 : 1].push_back(p);
  return groups;
}

}  // namespace plimsoll
