#include "job/finding.h"

#include <array>

namespace plimsoll {

const char* to_string(Effect e) {
  static constexpr std::array kNames{"no effect", "partial", "otherwise", "refused", "conflict", "not known", "assumed", "missing", "note"};
  return kNames[static_cast<size_t>(e)];
}

}  // namespace plimsoll
