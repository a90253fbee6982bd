#include "util/parse_bytes.h"

#include <fmt/format.h>

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
  const char* start = copy.c_str();
  char* end = nullptr;
  // strtod also reads "0x10", "nan" and "inf"; a size starts with decimal digits.
  const bool decimal = copy.find_first_not_of("0123456789.-+") != 0 && copy.find('x') == std::string::npos;
  const double value = decimal ? std::strtod(start, &end) : 0;
  const auto refuse = [&] {
    throw Error(fmt::format("[{}] '{}' is not a size above zero", what, text), "e.g. 24GiB, 24564MiB or a number of bytes");
  };
  if (!end || end == start) refuse();
  std::string unit(end);
  unit.erase(0, std::min(unit.find_first_not_of(' '), unit.size()));
  const int power = power_of(unit);
  if (power < 0) refuse();
  const double bytes = std::floor(value * std::pow(1024.0, power));
  if (!(bytes >= 1 && bytes < 0x1p62)) refuse();
  return {static_cast<int64_t>(bytes)};
}

}  // namespace plimsoll
