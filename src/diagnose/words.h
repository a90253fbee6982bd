// What every reader of logs asks of a text.
#pragma once

#include <string_view>

namespace plimsoll {

inline bool has(std::string_view text, std::string_view word) { return text.find(word) != std::string_view::npos; }
inline bool is_digit(char c) { return c >= '0' && c <= '9'; }
inline std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t"), last = text.find_last_not_of(" \t\r");
  return first == std::string_view::npos ? std::string_view() : text.substr(first, last - first + 1);
}

}  // namespace plimsoll
