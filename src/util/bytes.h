// A number of bytes, and the one way it is printed: GiB, MiB or KiB (powers of two) with two decimals.
#pragma once

#include <compare>
#include <cstdint>
#include <string>

#include "util/checked.h"

namespace plimsoll {

struct Bytes {
  int64_t count = 0;

  friend auto operator<=>(Bytes, Bytes) = default;
  friend Bytes operator+(Bytes a, Bytes b) { return {checked_add(a.count, b.count)}; }
  friend Bytes operator-(Bytes a, Bytes b) { return {a.count - b.count}; }
  Bytes& operator+=(Bytes b) { return *this = *this + b; }
  Bytes& operator-=(Bytes b) { return *this = *this - b; }
};

std::string to_string(Bytes bytes);               // "1.25 GiB", "512 B"
std::string percent_of(Bytes part, Bytes whole);  // "12.5 %"; "-" when whole is 0
std::string with_commas(int64_t n);               // "1,234,567"

}  // namespace plimsoll
