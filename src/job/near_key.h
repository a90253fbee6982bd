// Keys that nobody knows: what they were perhaps meant to be, and whether memory may depend on them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace plimsoll {

// The one of `known` that `key` is a slip of: underscores left out, a letter or two changed. Empty: none.
std::string near_key(std::string_view key, const std::vector<std::string>& known);

// Whether its words are those of settings that decide memory: lora, quant, offload, batch, seq, zero, precision, ...
bool concerns_memory(std::string_view key);

}  // namespace plimsoll
