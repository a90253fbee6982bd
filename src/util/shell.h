// Words for a shell's command line.
#pragma once

#include <string>

namespace plimsoll {

// As it is when a shell takes it literally, else in single quotes.
std::string shell_quoted(const std::string& word);

}  // namespace plimsoll
