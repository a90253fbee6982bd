// Answers of the C interface (plimsoll.h) that its other parts give.
#pragma once

#include <string>

#include "util/error.h"

struct plimsoll_answer;

namespace plimsoll {

plimsoll_answer* error_answer(ExitCode code, const std::string& message, const std::string& hint);

}  // namespace plimsoll
