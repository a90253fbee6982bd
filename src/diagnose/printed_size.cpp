#include "diagnose/printed_size.h"
#include "diagnose/words.h"

#include <array>
#include <cctype>

namespace plimsoll {

namespace {

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

struct Unit {
  std::string_view name;
  int shift;
};
constexpr std::array<Unit, 27> kUnits{{{"bytes", 0}, {"Bytes", 0}, {"byte", 0}, {"B", 0},   {"KiB", 10}, {"KB", 10}, {"kB", 10},
                                       {"kb", 10},   {"Ki", 10},   {"K", 10},   {"k", 10},  {"MiB", 20}, {"MB", 20}, {"mb", 20},
                                       {"Mi", 20},   {"M", 20},    {"GiB", 30}, {"GB", 30}, {"Gb", 30},  {"gb", 30}, {"Gi", 30},
                                       {"G", 30},    {"TiB", 40},  {"TB", 40},  {"Ti", 40}, {"T", 40},   {"KIB", 10}}};

std::optional<int> shift_of(std::string_view unit) {
  for (const Unit& u : kUnits)
    if (u.name == unit) return u.shift;
  return {};
}

struct Decimal {
  __int128 digits = 0, scale = 1;  // digits / scale
  std::string_view rest;
};

// 18 digits at most: what is longer is no size.
std::optional<Decimal> decimal(std::string_view text) {
  Decimal d;
  int digits = 0;
  bool point = false;
  size_t i = 0;
  for (; i < text.size(); ++i) {
    const char c = text[i];
    if (is_digit(c)) {
      if (++digits > 18) return {};
      d.digits = d.digits * 10 + (c - '0');
      if (point) d.scale *= 10;
    } else if (c == '.' && !point && digits > 0) {
      point = true;
    } else if (c != ',' || point || i + 1 >= text.size() || !is_digit(text[i + 1])) {
      break;
    }
  }
  if (digits == 0) return {};
  d.rest = text.substr(i);
  return d;
}

std::string_view without_spaces(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\n\r:=");
  return first == std::string_view::npos ? std::string_view() : text.substr(first);
}

}  // namespace

std::optional<PrintedSize> printed_size(std::string_view text) {
  const auto number = decimal(without_spaces(text));
  if (!number) return {};
  std::string_view rest = number->rest;
  if (!rest.empty() && (rest[0] == ' ' || rest[0] == '\n')) rest.remove_prefix(1);
  size_t length = 0;
  while (length < rest.size() && is_letter(rest[length])) ++length;
  const auto shift = shift_of(rest.substr(0, length));
  if (!shift) return {};
  const __int128 scaled = number->digits << *shift;
  const __int128 bytes = (scaled + number->scale / 2) / number->scale;
  if (bytes > (__int128{1} << 62)) return {};
  return PrintedSize{static_cast<int64_t>(bytes), rest.substr(length)};
}

std::optional<int64_t> size_after(std::string_view text, std::string_view marker) {
  const size_t at = text.find(marker);
  if (at == std::string_view::npos) return {};
  const auto size = printed_size(text.substr(at + marker.size()));
  return size ? std::optional(size->bytes) : std::nullopt;
}

std::optional<int64_t> size_before(std::string_view text, std::string_view marker) {
  const size_t at = text.find(marker);
  if (at == std::string_view::npos) return {};
  size_t begin = at;
  while (begin > 0 && (text[begin - 1] == ' ' || text[begin - 1] == '\n')) --begin;
  const size_t end = begin;
  while (begin > 0 && is_letter(text[begin - 1])) --begin;
  while (begin > 0 && (text[begin - 1] == ' ' || text[begin - 1] == '\n')) --begin;
  while (begin > 0 && (is_digit(text[begin - 1]) || text[begin - 1] == '.' || text[begin - 1] == ',')) --begin;
  const auto size = printed_size(text.substr(begin, end - begin));
  return size && size->rest.empty() ? std::optional(size->bytes) : std::nullopt;
}

std::optional<int64_t> number_after(std::string_view text, std::string_view marker) {
  const size_t at = text.find(marker);
  if (at == std::string_view::npos) return {};
  const auto number = decimal(without_spaces(text.substr(at + marker.size())));
  if (!number || number->scale != 1) return {};
  return static_cast<int64_t>(number->digits);
}

}  // namespace plimsoll
