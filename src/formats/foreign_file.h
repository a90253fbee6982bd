// What a file is that no reader takes, in words, and the way on. By its content first, by its name where the content does not tell.
#pragma once

#include <string>
#include <string_view>

#include "formats/document.h"
#include "util/error.h"

namespace plimsoll {

// Throws for a file that is certainly no configuration: empty, binary, Python, a notebook, a log, a list of packages. `bytes` may be its
// beginning alone.
void refuse_foreign_file(const std::string& path, std::string_view bytes);

// The same of what is certainly no log: a script, a notebook, a list of packages, a picture.
void refuse_what_is_no_log(const std::string& path, std::string_view bytes);

// For a configuration that parses but is nobody's that is known: the keys it has, and the command that asks the same of a known model.
[[noreturn]] void refuse_unknown_configuration(const Document& document);

// For a training command of nobody's that is known: what was understood of it.
[[noreturn]] void refuse_unknown_command(const Document& command);

}  // namespace plimsoll
