// How many columns a text takes on a terminal: two for East Asian wide characters, none for combining marks.
#pragma once

#include <string>
#include <string_view>

namespace plimsoll {

size_t display_width(std::string_view utf8);
// At most `width` columns: what is longer loses its middle, and has "…" there.
std::string shortened(std::string_view utf8, size_t width);
// Control characters, also those of C1, as '?'; line ends and tabs stay where `lines` says so.
std::string without_controls(std::string_view utf8, bool lines = false);
// For terminals without Unicode: arrows, boxes and marks that reports use, in ASCII. What came from outside stays as it is.
std::string in_ascii(std::string_view utf8);

}  // namespace plimsoll
