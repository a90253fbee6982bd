#include "optim/optimizer.h"

namespace plimsoll {

namespace {

// Benchmarks of forward and backward: gradients are made and dropped, nothing is updated.
struct NoUpdate final : Optimizer {
  void step(const std::vector<Parameter*>&) override {}
  Tensors states() const override { return {}; }
};

std::unique_ptr<Optimizer> make_no_update(const Arguments&) { return std::make_unique<NoUpdate>(); }

}  // namespace

extern const OptimizerEntry kNoUpdate{
    .name = "none",
    .library = "",
    .keeps = "nothing: forward and backward alone",
    .make = make_no_update,
    .arguments = {{"maximize", false}},
};

}  // namespace plimsoll
