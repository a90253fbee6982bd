// Values of a configuration that are lists: one number or name for each block of a network.
#pragma once

#include <string>
#include <vector>

#include "job/config.h"

namespace plimsoll {

// A list of at least so many sizes; throws for anything else.
std::vector<int64_t> size_list(const Config& config, const char* key, const std::vector<int64_t>& fallback, size_t least = 1);
// The same where one number stands for `count` equal ones; throws for a list of another length.
std::vector<int64_t> size_per_block(const Config& config, const char* key, int64_t fallback, size_t count);
std::vector<bool> flag_per_block(const Config& config, const char* key, bool fallback, size_t count);
std::vector<std::string> name_list(const Config& config, const char* key, const std::vector<std::string>& fallback);

}  // namespace plimsoll
