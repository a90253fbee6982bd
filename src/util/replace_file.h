// A user's own file with new contents: the old ones stay beside it, and no moment exists in which the file is neither.
#pragma once

#include <string>
#include <string_view>

namespace plimsoll {

// Returns the path of the copy of what was there: PATH.orig, or PATH.orig.1 and so on where that exists. Mode and symbolic links are kept.
// Throws an Error when the file no longer holds `before`, and when it cannot be written; it is then as it was.
std::string replace_file(const std::string& path, std::string_view before, std::string_view after);

}  // namespace plimsoll
