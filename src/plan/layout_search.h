// The layouts of one kind that are worth executing, and what they need: every spread with every micro-batch and recomputation, on the ranks
// that usually need the most memory or time. layouts.h ranks them and executes in full what people see.
#pragma once

#include "plan/batches.h"
#include "plan/layout_kinds.h"

namespace plimsoll {

// Spreads of one kind, of which all but the first need more than that: where it does not fit, they are not executed.
struct SpreadGroup {
  const LayoutKind* kind;
  std::vector<Spread> spreads;
};

struct ExploredGroup {
  std::vector<Layout> layouts;  // that were executed
  size_t possible = 0;
};

class LayoutSearch {
 public:
  // `global`: samples of a step; `parameters`: of the whole model. The request must outlive this.
  LayoutSearch(const LayoutRequest& request, int64_t global, int64_t parameters);

  // Memory grows with the micro-batch and falls with recomputation: what is larger than something that did not fit is not executed, nor
  // what recomputes although it fits without.
  ExploredGroup explore(const SpreadGroup& group) const;
  // What needs the least of all its levels and micro-batches, though its weights alone are too large; nothing where none can be.
  std::optional<Layout> smallest(const SpreadGroup& group) const;
  // What the first of them needs at the least.
  Bytes lower_bound_of(const SpreadGroup& group) const;

 private:
  std::vector<nlohmann::json> levels_of(const LayoutKind& kind) const;
  std::vector<Split> splits(const Spread& spread) const;
  Patch recipe(const Spread& spread, const Split& split, const nlohmann::json& level) const;
  std::optional<Layout> executed(const LayoutKind& kind, const Spread& spread, const Patch& changes, const Job& job) const;

  const LayoutRequest& request_;
  int64_t global_, parameters_;
  Job base_;
};

}  // namespace plimsoll
