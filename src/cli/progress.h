// On a terminal, how far a large file is read.
#pragma once

#include <functional>
#include <string>

namespace plimsoll {

// Empty when nobody looks. The line is gone when all is read.
std::function<void(size_t done, size_t total)> reading_progress(const std::string& file);

}  // namespace plimsoll
