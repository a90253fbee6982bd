#include "util/parse_bytes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>

#include "util/error.h"
#include "util/text.h"

namespace plimsoll {

namespace {

// Powers of 1024 for "", "b", "k", "kb", "kib", ...; -1 for anything else.
int power_of(std::string unit) {
  if (unit.empty() || unit == "b" || unit == "bytes") return 0;
  const size_t power = std::string_view("kmgt").find(unit[0]);
  unit.erase(0, 1);
  return power != std::string_view::npos && (unit.empty() || unit == "b" || unit == "ib") ? static_cast<int>(power) + 1 : -1;
}

}  // namespace

Bytes parse_bytes(std::string_view text, std::string_view what) {
  const std::string copy = lower(text);
  const size_t digits = std::min(copy.find_first_not_of("0123456789."), copy.size());
  const std::string number = copy.substr(0, digits);
  std::string unit = copy.substr(digits);
  unit.erase(0, std::min(unit.find_first_not_of(' '), unit.size()));
  char* end = nullptr;
  const double value = std::strtod(number.c_str(), &end);
  const auto refuse = [&] {
    throw Error(fmt::format("[{}] '{}' is not a size above zero", what, text), "e.g. 24GiB, 24564MiB or a number of bytes");
  };
  if (number.empty() || *end != '\0') refuse();
  const int power = power_of(unit);
  if (power < 0) refuse();
  const double bytes = std::floor(value * std::pow(1024.0, power));
  if (!(bytes >= 1 && bytes < 0x1p62)) refuse();
  return {static_cast<int64_t>(bytes)};
}

}  // namespace plimsoll
