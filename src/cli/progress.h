// On a terminal, how far a long answer is.
#pragma once

#include <functional>
#include <string>

#include "cli/command.h"
#include "util/progress.h"

namespace plimsoll {

// Of a large file that is read. Empty when nobody looks. The line is gone when all is read.
OnProgress reading_progress(const std::string& file);

// Answers with a line that counts what was executed, when it takes longer than a blink and somebody looks. It is wiped before anything
// else is said, be it an error.
ExitCode answer_counting(const OutputFlags& output, const std::function<ExitCode(const Show&)>& answer);

}  // namespace plimsoll
