#include "step/optimizer_costs.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "optim/foreach.h"
#include "step/in_backward.h"
#include "step/master_weights.h"

namespace plimsoll {

namespace {

using Json = nlohmann::json;

struct Measured {
  int64_t now = 0, peak = 0;
};

// Bytes alive now, and the most since event `from`.
Measured measure(const Trace& trace, size_t from) {
  Measured m;
  for (size_t i = 0; i < trace.events.size(); ++i) {
    const Event& e = trace.events[i];
    if (e.kind == Event::Kind::alloc) m.now += trace.storages[e.storage].bytes;
    if (e.kind == Event::Kind::free) m.now -= trace.storages[e.storage].bytes;
    if (i >= from) m.peak = std::max(m.peak, m.now);
  }
  return m;
}

// One square layer in a training loop without a model.
class Layer {
 public:
  Layer(std::unique_ptr<Optimizer> optimizer, CostPrecision precision) : optimizer_(std::move(optimizer)) {
    make_parameter(tape_, weight_, {kCostSide, kCostSide}, precision == CostPrecision::fp32 ? DType::float32 : DType::bfloat16);
    trained_ = {&weight_};
    if (precision == CostPrecision::bf16_master) master_.emplace(false, tape_, trained_);
    tape_.begin_phase(Phase::optimizer);
    optimizer_->know_linear_layers({{"layer", updated()[0]}});
    optimizer_->attach(updated());
  }

  OptimizerCost run() {
    const size_t from = tape_.trace.events.size();
    for (int i = 0; i < 2; ++i) step();
    const Measured m = measure(tape_.trace, from);
    const auto each = [](int64_t bytes) { return static_cast<double>(bytes) / (kCostSide * kCostSide); };
    OptimizerCost c;
    c.after = each(m.now);
    c.peak = each(m.peak);
    c.states = c.after - each(weight_.value.storage().bytes);
    c.managed = each(optimizer_->managed().count);
    return c;
  }

 private:
  const std::vector<Parameter*>& updated() const { return master_ ? master_->parameters() : trained_; }

  void step() {
    weight_.grad = zeros_like(weight_.value);
    if (master_) master_->take_gradients();
    optimizer_->step(updated());
    weight_.grad.reset();
    if (master_) master_->drop_gradients();
  }

  Tape tape_;
  Parameter weight_;
  std::vector<Parameter*> trained_;
  std::optional<MasterWeights> master_;
  std::unique_ptr<Optimizer> optimizer_;
};

struct Variant {
  const char* text;
  Json args;
};

// The default, the other forms, and what people set most.
const std::vector<Variant>& variants() {
  static const std::vector<Variant> kVariants{{"", Json::object()},
                                              {"foreach: false", {{"foreach", false}}},
                                              {"foreach: true", {{"foreach", true}}},
                                              {"fused: true", {{"fused", true}}},
                                              {"momentum: 0.9", {{"momentum", 0.9}}},
                                              {"amsgrad: true", {{"amsgrad", true}}},
                                              {"slice_p: 11", {{"slice_p", 11}}}};
  return kVariants;
}

bool same(const std::optional<OptimizerCost>& a, const std::optional<OptimizerCost>& b) {
  return a.has_value() == b.has_value() && (!a || (a->states == b->states && a->peak == b->peak && a->managed == b->managed));
}

bool same(const OptimizerCostRow& a, const OptimizerCostRow& b) {
  return same(a.fp32, b.fp32) && same(a.bf16, b.bf16) && same(a.bf16_master, b.bf16_master);
}

}  // namespace

std::optional<OptimizerCost> optimizer_cost(const OptimizerEntry& entry, const Json& args, CostPrecision precision) {
  if (precision == CostPrecision::bf16_master && is_lomo(entry.name)) return std::nullopt;  // those are updated after backward
  std::optional<OptimizerCost> cost;
  problem_in([&] { cost = Layer(make_optimizer(entry, Config("optimizer", args)), precision).run(); });  // none: it refuses the arguments
  return cost;
}

// A variant that costs the same as the optimizer's default is not listed.
std::vector<OptimizerCostRow> optimizer_cost_table() {
  std::vector<OptimizerCostRow> table;
  for (const OptimizerEntry& e : optimizer_registry()) {
    const size_t first = table.size();
    for (const Variant& v : variants()) {
      const auto cost = [&](CostPrecision p) { return optimizer_cost(e, v.args, p); };
      OptimizerCostRow row{&e, v.text, cost(CostPrecision::fp32), cost(CostPrecision::bf16), cost(CostPrecision::bf16_master)};
      const bool refused = !row.fp32 && !row.bf16 && !row.bf16_master;
      if (refused || (table.size() > first && same(row, table[first]))) continue;
      table.push_back(std::move(row));
    }
  }
  return table;
}

}  // namespace plimsoll
