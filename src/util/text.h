// Small things about text: suggestions for a misspelt name, padding, joining.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace plimsoll {

// "did you mean 'llama'?" when something is near, else "known: a, b, c".
std::string did_you_mean(std::string_view text, const std::vector<std::string>& known);
std::string join(const std::vector<std::string>& parts, std::string_view separator);
std::string lower(std::string_view text);

}  // namespace plimsoll
