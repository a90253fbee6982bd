// The header of a safetensors file: eight bytes of its length, then JSON {name: {dtype, shape, data_offsets}}.
#pragma once

#include <string>
#include <string_view>

#include "formats/document.h"

namespace plimsoll {

bool looks_like_safetensors(std::string_view bytes);
// Fills kind, tensors and value: {"metadata": {...}, "missing_bytes": how much of the data the file lacks}. Throws an Error for
// what the safetensors library refuses in a header.
void parse_safetensors(std::string_view bytes, Document& document);

}  // namespace plimsoll
