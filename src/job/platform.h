// What a run stands on, where that changes memory: the versions of its libraries and the device's kind. Plain data.
#pragma once

#include <compare>
#include <string>

namespace plimsoll {

struct Version {
  int major = 0, minor = 0;
  auto operator<=>(const Version&) const = default;
};

// "2.4", "2.4.1", "2.13.0+cu130"; a nightly build ("2.1.0.dev20230623") counts as the release before it. An Error names the
// library and the text otherwise.
Version parse_version(const std::string& library, const std::string& text);
std::string to_string(Version v);

struct Platform {
  Version torch{2, 14};
  Version transformers{5, 12};
  std::string target;  // CUDA capability "9.0" or AMD's "gfx942"; empty: not one that differs from most
  bool is_amd() const { return target.rfind("gfx", 0) == 0; }
};

}  // namespace plimsoll
