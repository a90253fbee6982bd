// Sizes as error texts print them: "20.00 MiB", "2.00GiB", "21.95G", "0B", "16 bytes", "31,850kB". Every unit is a power of two, as all of
// these programs mean it; the value is rounded to whole bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace plimsoll {

// The size that `text` begins with (after spaces), and what follows it. None when there is no number, no unit, or more than 2^62 bytes.
struct PrintedSize {
  int64_t bytes = 0;
  std::string_view rest;
};
std::optional<PrintedSize> printed_size(std::string_view text);

// The size that follows the first `marker` in the text, or that stands right before it.
std::optional<int64_t> size_after(std::string_view text, std::string_view marker);
std::optional<int64_t> size_before(std::string_view text, std::string_view marker);

// A whole number, commas allowed: "17,179" after the marker; without a unit.
std::optional<int64_t> number_after(std::string_view text, std::string_view marker);

}  // namespace plimsoll
