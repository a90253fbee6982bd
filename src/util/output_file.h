// Files that a user asked for by name: looked at before the work, written whole or not at all.
#pragma once

#include <string>
#include <string_view>

namespace plimsoll {

// An Error (usage) when the directory of `path` is not there or cannot be written to.
void check_output_file(const std::string& path);
// The same, and when there is such a file already: for what a user may have edited since.
void check_new_file(const std::string& path);
// In place of what was there; what a crash or a full disk leaves is not called by its name.
void write_output_file(const std::string& path, std::string_view bytes);

}  // namespace plimsoll
