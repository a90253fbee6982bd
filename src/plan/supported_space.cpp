#include "plan/supported_space.h"

namespace plimsoll {

Space supported_space(Evaluator& evaluator, const Constraints& constraints, size_t device) {
  Space space = space_of(evaluator.job(), constraints, evaluator.devices()[device]);
  const std::vector<std::vector<Choice>*> all{&space.losses, &space.offloads, &space.lengths};
  std::vector<Patch> alone{Patch()};
  for (const auto* choices : all)
    for (const Choice& c : *choices) alone.push_back(c.changes);
  alone.insert(alone.end(), space.costless.begin(), space.costless.end());
  evaluator.prepare(alone);
  const Candidate& now = evaluator.evaluate(Patch());
  if (now.needs.empty()) return space;
  // Expandable segments may take more where blocks are not split.
  space.free = Patch();
  for (const Patch& c : space.costless) {
    const Candidate& with_it = evaluator.evaluate(c);
    if (!with_it.needs.empty() &&
        static_cast<double>(with_it.needs[device].device.high.count) <= 1.005 * static_cast<double>(now.needs[device].device.high.count))
      space.free = merged(space.free, c);
  }
  for (auto* choices : all) std::erase_if(*choices, [&](const Choice& c) { return !evaluator.evaluate(c.changes).impossible.empty(); });
  return space;
}

}  // namespace plimsoll
