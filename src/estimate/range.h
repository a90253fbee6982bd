// A figure with the interval that is expected to hold it in nine runs of ten.
#pragma once

#include "util/bytes.h"

namespace plimsoll {

struct Range {
  Bytes bytes, low, high;

  friend Range operator+(const Range& a, const Range& b) { return {a.bytes + b.bytes, a.low + b.low, a.high + b.high}; }
};

inline Range exactly(Bytes b) { return {b, b, b}; }

}  // namespace plimsoll
