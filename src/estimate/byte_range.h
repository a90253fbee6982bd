// A size that is not known to the byte: the best estimate and what it may lie between.
#pragma once

#include "util/bytes.h"

namespace plimsoll {

struct ByteRange {
  Bytes bytes, low, high;

  static ByteRange exact(Bytes b) { return {b, b, b}; }
  bool is_exact() const { return low == high; }

  friend ByteRange operator+(const ByteRange& a, const ByteRange& b) { return {a.bytes + b.bytes, a.low + b.low, a.high + b.high}; }
  ByteRange& operator+=(const ByteRange& b) { return *this = *this + b; }
};

inline Bytes times(int64_t n, Bytes b) { return {checked_mul(n, b.count)}; }
inline ByteRange times(int64_t n, const ByteRange& r) { return {times(n, r.bytes), times(n, r.low), times(n, r.high)}; }

}  // namespace plimsoll
