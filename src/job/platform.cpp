#include "job/platform.h"

#include <cstdio>

#include "util/error.h"

namespace plimsoll {

Version parse_version(const std::string& library, const std::string& text) {
  Version v;
  int used = 0;
  const bool read = std::sscanf(text.c_str(), "%2d.%2d%n", &v.major, &v.minor, &used) == 2 && v.major >= 0 && v.minor >= 0;
  const char next = read && used < static_cast<int>(text.size()) ? text[static_cast<size_t>(used)] : '.';
  if (!read || (next != '.' && next != '+'))
    throw Error("[job] " + library + " '" + text + "' is not a version", "write it as " + library + ".__version__ does: 2.4 or 2.4.1");
  if (text.find(".dev") != std::string::npos && v.minor > 0) --v.minor;
  return v;
}

std::string to_string(Version v) { return std::to_string(v.major) + "." + std::to_string(v.minor); }

}  // namespace plimsoll
