// The header of a GGUF file, versions 2 and 3: keys with values, then names, sizes and types of tensors.
#pragma once

#include <string>
#include <string_view>

#include "formats/document.h"

namespace plimsoll {

bool looks_like_gguf(std::string_view bytes);
// Fills kind, tensors and value: {key: scalar or text}; of an array its length, as "key.length". Throws an Error.
void parse_gguf(std::string_view bytes, Document& document);

}  // namespace plimsoll
