// How far a long answer is, on stderr; and Ctrl-C, which ends it with what is known by then. On a terminal one line that is written anew,
// without one a line from time to time. Never part of the answer.
#pragma once

#include <functional>

#include "cli/command.h"
#include "util/progress.h"

namespace plimsoll {

// Answers while somebody may look and may end it. The line is wiped before anything else is said, be it an error. Ended by Ctrl-C without
// an answer it says so and gives Cancelled::kCode.
ExitCode answer_with_progress(const OutputFlags& output, const std::function<ExitCode(const Show&)>& answer);
// The same for an answer that is written otherwise.
ExitCode with_progress(const std::function<ExitCode(const OnProgress&)>& answer);

}  // namespace plimsoll
