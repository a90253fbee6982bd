#include "estimate/verdict.h"

#include <array>
#include <cstddef>

namespace plimsoll {

const char* to_string(Verdict v) {
  constexpr std::array kNames{"fits", "tight", "does not fit", "unknown"};
  return kNames[static_cast<size_t>(v)];
}

}  // namespace plimsoll
