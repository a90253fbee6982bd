// The difference of two texts, line by line, as `diff -u` shows it.
#pragma once

#include <string>

namespace plimsoll {

// Empty when they are the same.
std::string line_diff(const std::string& before, const std::string& after, const std::string& name);

}  // namespace plimsoll
