#include "job/problem.h"

#include "util/outcome.h"

namespace plimsoll {

void require_none(const Problems& problems) {
  if (!problems.empty()) throw Error(problems.front().what, problems.front().hint);
}

std::optional<Problem> problem_in(const std::function<void()>& work) {
  const Outcome<bool> outcome = outcome_of([&] { return work(), true; });
  if (outcome) return std::nullopt;
  return Problem{outcome.refused->what(), outcome.refused->hint()};
}

bool succeeds(const std::function<void()>& work, Problems& out) {
  const std::optional<Problem> problem = problem_in(work);
  if (problem) out.push_back(*problem);
  return !problem;
}

}  // namespace plimsoll
