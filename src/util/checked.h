// Arithmetic on sizes that come from users: an overflow is an Error, never undefined behaviour.
#pragma once

#include <cstdint>
#include <string>

#include "util/error.h"

namespace plimsoll {

inline int64_t checked_mul(int64_t a, int64_t b) {
  int64_t product;
  if (__builtin_mul_overflow(a, b, &product))
    throw Error("[size] " + std::to_string(a) + " x " + std::to_string(b) + " does not fit in 63 bits",
                "one of the sizes (batch, sequence, width, vocabulary) is far too large");
  return product;
}

inline int64_t checked_add(int64_t a, int64_t b) {
  int64_t sum;
  if (__builtin_add_overflow(a, b, &sum))
    throw Error("[size] " + std::to_string(a) + " + " + std::to_string(b) + " does not fit in 63 bits",
                "one of the sizes (batch, sequence, width, vocabulary) is far too large");
  return sum;
}

inline int64_t round_up(int64_t n, int64_t multiple) { return checked_mul(checked_add(n, multiple - 1) / multiple, multiple); }

}  // namespace plimsoll
