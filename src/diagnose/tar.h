// A tar archive (ustar) of small texts, the same bytes for the same content.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace plimsoll {

// Names of at most 100 bytes, contents below 8 GiB.
std::string tar_archive(const std::vector<std::pair<std::string, std::string>>& files);

}  // namespace plimsoll
