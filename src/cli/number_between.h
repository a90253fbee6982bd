// Bounds of a number on the command line. CLI11's own let through what is not a number at all ("nan").
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <string>

namespace plimsoll {

inline CLI::Validator number_between(double low, double high) {
  return CLI::Validator(
      [low, high](std::string& text) -> std::string {
        char* end = nullptr;
        const double value = std::strtod(text.c_str(), &end);
        if (!text.empty() && *end == '\0' && value >= low && value <= high) return "";
        return fmt::format("'{}' is not between {} and {}", text, low, high);
      },
      "", "between");
}

// How large it may be is said by who knows why.
inline CLI::Validator above_zero() {
  return CLI::Validator(
      [](std::string& text) -> std::string {
        char* end = nullptr;
        const double value = std::strtod(text.c_str(), &end);
        return !text.empty() && *end == '\0' && value > 0 ? "" : fmt::format("'{}' is no number above 0", text);
      },
      "", "above zero");
}

}  // namespace plimsoll
