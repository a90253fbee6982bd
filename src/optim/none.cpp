#include "optim/arguments.h"
#include "optim/optimizers.h"

namespace plimsoll {

namespace {

// Benchmarks of forward and backward: gradients are made and dropped, nothing is updated.
struct NoUpdate : Optimizer {
  void step(const std::vector<Parameter*>&) override {}
  Tensors states() const override { return {}; }
};

}  // namespace

std::unique_ptr<Optimizer> make_no_update(const Config& args) {
  Arguments("none", args, {});
  return std::make_unique<NoUpdate>();
}

}  // namespace plimsoll
