// The bytes of a gzip file.
#pragma once

#include <string>
#include <string_view>

namespace plimsoll {

bool looks_like_gzip(std::string_view bytes);
// Throws an Error naming the file for damaged data, and for more than `most` bytes, however small the file is.
std::string gunzip(std::string_view bytes, const std::string& name, size_t most = size_t{1} << 32);

}  // namespace plimsoll
