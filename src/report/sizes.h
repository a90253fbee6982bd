// Sizes as reports show them.
#pragma once

#include <string>

#include "util/bytes.h"

namespace plimsoll {

inline std::string size_text(int64_t bytes) { return to_string(Bytes{bytes}); }

}  // namespace plimsoll
