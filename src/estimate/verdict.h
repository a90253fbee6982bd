// Whether something fits in what there is.
#pragma once

#include <cstdint>

namespace plimsoll {

enum class Verdict : uint8_t { fits, tight, does_not_fit, unknown };
const char* to_string(Verdict);  // "fits", "tight", "does not fit", "unknown"

}  // namespace plimsoll
