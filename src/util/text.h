// Small things about text: suggestions for a misspelt name, splitting, joining.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace plimsoll {

// "did you mean 'llama'?" when something is near, else "known: a, b, c".
std::string did_you_mean(std::string_view text, const std::vector<std::string>& known);
// The names in the order of how much they look like `text`.
std::vector<std::string> nearest_first(std::string_view text, std::vector<std::string> names);
// "a,b" at ',' is {"a", "b"}; "" is {""}.
std::vector<std::string> split_at(std::string_view text, char separator);
std::string join(const std::vector<std::string>& parts, std::string_view separator);
std::string lower(std::string_view text);
// Text from a file as a terminal may show it: control characters become '?', and what is beyond `most` bytes "...".
std::string printable(std::string_view text, size_t most);

}  // namespace plimsoll
