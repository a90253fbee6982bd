// The best recipe of a space on one device, by executing candidates. Three facts keep their number small: memory grows with the
// micro-batch (of an accumulation; the whole batch at once is looked at for itself) and falls with every block that is checkpointed, a
// larger micro-batch is never slower a sample, and no checkpoint makes a step faster. Each is used only to leave candidates out that could
// not win; what wins was executed.
#pragma once

#include <array>
#include <optional>

#include "plan/placement.h"
#include "plan/space.h"

namespace plimsoll {

enum class Objective : uint8_t { throughput, memory, batch, sequence };
const char* to_string(Objective o);
Objective parse_objective(const std::string& text);

class Search {
 public:
  // `limit`: what the upper end of the need may be on that device.
  Search(Evaluator& evaluator, const Space& space, const Placement& placement, size_t device, Bytes limit, Objective objective);

  // The best with choices up to that kind, or null; `than` (may be null) must be beaten.
  const Candidate* best(LeverKind kind, const Candidate* than = nullptr);
  // What needs the least of all that was executed for it, whether it fits or not.
  const Candidate* smallest() const { return smallest_; }

  bool fits(const Candidate& c) const;
  // Smaller is better: by the objective, then by the number of changes.
  std::tuple<double, size_t, int64_t> cost(const Candidate& c) const;

 private:
  Patch recipe_at(const Patch& recipe, const Split& split, const nlohmann::json& checkpointing) const;
  const nlohmann::json& full() const { return levels_.back(); }
  // `shrinking`: of the arithmetic a sample, from the smallest batch to large ones; found by the first recipe that is explored.
  void explore(const Patch& recipe, const std::vector<Split>& splits, double& shrinking);
  void explore_splits(const Patch& recipe, const std::vector<Split>& splits, double& shrinking);
  void explore_batch(const Patch& recipe, const Split& split);
  void fit_level(const Patch& recipe, const Split& split, bool selective);
  void try_every_kth(const Patch& recipe, const Split& split);
  void offer(const Candidate& c);
  bool could_win(const Candidate& c) const;
  bool could_ever_win(const Patch& recipe, const StepTime& corner, double shrinking) const;
  void run_smallest(LeverKind kind);
  void simplify();
  Bytes least_of(const Patch& recipe) const;
  Patch recipe_of(const Choice& group, const Choice& loss, const Choice& offload, const Choice& length) const;
  Patch corner_of(const Patch& recipe) const { return recipe_at(recipe, splits_for(recipe)[0], full()); }
  // One choice of each kind. Groups that differ in nothing but the optimizer and its place train with the same kernels: what a loss, an
  // offload or a length takes or gives is executed for the first of each such class, and added to the corner of the others.
  struct Combination {
    const Choice* group;
    const Choice* like;  // the first of its class
    size_t loss;
    const Choice *offload, *length;
  };
  std::vector<Combination> combinations(LeverKind kind) const;
  std::array<Patch, 3> probes_of(const Combination& c) const;
  std::optional<StepTime> corner_time(const Combination& c);  // none: not known
  // A recipe, and how long its corner (the smallest micro-batch, everything checkpointed) is thought to take.
  struct Ranked {
    Patch changes;
    size_t loss = 0;
    std::optional<StepTime> corner;
    double seconds = 0;  // a sample; infinite: not known
  };
  std::vector<Ranked> ranked(LeverKind kind);
  const Candidate& run(const Patch& changes);
  std::vector<Split> splits_for(const Patch& recipe) const;

  Evaluator& evaluator_;
  const Space& space_;
  const Placement& placement_;
  size_t device_;
  Bytes limit_;
  Objective objective_;
  int64_t whole_parameters_ = 0;        // at least
  std::vector<nlohmann::json> levels_;  // what the search starts with: nothing checkpointed, and everything
  const Candidate* best_ = nullptr;
  const Candidate* smallest_ = nullptr;
};

// Device need against time of a sample: those that no other beats in both, the smallest first.
std::vector<const Candidate*> pareto_front(const std::vector<const Candidate*>& candidates, size_t device);
double seconds_per_sample(const Candidate& c, size_t device);  // infinite when it is not known

}  // namespace plimsoll
