// Files that a user asked for by name.
#pragma once

#include <string>
#include <string_view>

namespace plimsoll {

// An Error (usage) when there is such a file already, or its directory cannot be written to: asked before the work, not after.
void check_new_file(const std::string& path);
// The whole file or none: what a crash leaves is not called by its name.
void write_new_file(const std::string& path, std::string_view text);

}  // namespace plimsoll
