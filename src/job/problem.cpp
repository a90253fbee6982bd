#include "job/problem.h"

#include "util/error.h"

namespace plimsoll {

void require_none(const Problems& problems) {
  if (!problems.empty()) throw Error(problems.front().what, problems.front().hint);
}

std::optional<Problem> problem_in(const std::function<void()>& work) {
  try {
    work();
    return std::nullopt;
  } catch (const Error& e) {
    return Problem{e.what(), e.hint()};
  }
}

bool succeeds(const std::function<void()>& work, Problems& out) {
  const std::optional<Problem> problem = problem_in(work);
  if (problem) out.push_back(*problem);
  return !problem;
}

}  // namespace plimsoll
