// The environment variables that PyTorch's allocator reads, with expandable segments on.
#pragma once

#include <map>
#include <string>

namespace plimsoll {

// To be set on top of `environment`; empty when it says something about expandable segments already. What else it says stays.
std::map<std::string, std::string> with_expandable_segments(const std::map<std::string, std::string>& environment);

}  // namespace plimsoll
