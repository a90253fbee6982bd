// Why a job cannot be executed, and a way out. Checks add to a list instead of throwing, so that all problems can be shown at once;
// program/program.h has the list of a job.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace plimsoll {

struct Problem {
  std::string what;  // "[zero1] world 4 is not that of ddp, 8"
  std::string hint;  // a way out
};

using Problems = std::vector<Problem>;

// Throws the first as an Error.
void require_none(const Problems& problems);

// What only doing it can tell (a configuration that cannot be read, a head count that does not divide, a sequence longer than its table of
// positions): an Error that `work` throws is the problem. Whatever else it throws goes on, so that a bug never reads as "cannot be run".
std::optional<Problem> problem_in(const std::function<void()>& work);
// The same, added to a list; true: there is none.
bool succeeds(const std::function<void()>& work, Problems& out);

}  // namespace plimsoll
