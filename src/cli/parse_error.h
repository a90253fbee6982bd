// What the parser of the command line refuses, in the words of every other error.
#pragma once

#include <CLI/CLI.hpp>

#include "util/error.h"

namespace plimsoll {

// `app` is the program whose parsing ended in `refused`.
Error error_of(const CLI::App& app, const CLI::ParseError& refused);

}  // namespace plimsoll
