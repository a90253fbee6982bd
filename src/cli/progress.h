// On a terminal, how far a large file is read.
#pragma once

#include <string>

#include "util/progress.h"

namespace plimsoll {

// Empty when nobody looks. The line is gone when all is read.
OnProgress reading_progress(const std::string& file);

}  // namespace plimsoll
