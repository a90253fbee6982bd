// A size as people write it: "24GiB", "24 GB", "24g", "24564MiB", "25769803776". GB means GiB here, because cards are sold
// and reported that way.
#pragma once

#include <string_view>

#include "util/bytes.h"

namespace plimsoll {

// `what` names the value in the Error for a text that is not a positive size.
Bytes parse_bytes(std::string_view text, std::string_view what);

}  // namespace plimsoll
