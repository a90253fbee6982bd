// How wide the terminal behind standard output is. Nothing is cached: a window may change between two answers.
#pragma once

#include <cstddef>

namespace plimsoll {

// Of the terminal; of a pipe or a file what COLUMNS says; else `otherwise`.
size_t terminal_columns(size_t otherwise);

}  // namespace plimsoll
