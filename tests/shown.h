// What a document says, on lines that never end: sentences are found whole.
#pragma once

#include <string>

#include "report/renderers.h"

namespace plimsoll {

inline std::string shown(const doc::Document& document) {
  Style style;
  style.width = 100'000;
  return doc::to_text(document, style);
}

inline std::string shown(const doc::Blocks& blocks) { return shown(doc::Document{"", {}, blocks}); }

}  // namespace plimsoll
