// How far apart two words are, for suggestions.
#pragma once

#include <cstddef>
#include <string_view>

namespace plimsoll {

// Damerau-Levenshtein distance with adjacent swaps, as ninja and git use it for suggestions.
size_t edit_distance(std::string_view a, std::string_view b);

}  // namespace plimsoll
