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
// Text from a file as a terminal may show it: control characters become '?', and what is beyond `most` bytes "...".
std::string printable(std::string_view text, size_t most);

}  // namespace plimsoll
