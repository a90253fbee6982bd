#include "report/display_width.h"

#include <algorithm>
#include <array>
#include <utility>

namespace plimsoll {

namespace {

struct Range {
  char32_t first, last;
};

// Unicode 15: EastAsianWidth W and F, merged where nothing else lies between; and emoji.
constexpr std::array kWide{Range{0x1100, 0x115f},   Range{0x231a, 0x231b},   Range{0x2e80, 0x303e},   Range{0x3041, 0xa4cf},
                           Range{0xa960, 0xa97f},   Range{0xac00, 0xd7a3},   Range{0xf900, 0xfaff},   Range{0xfe30, 0xfe6f},
                           Range{0xff00, 0xff60},   Range{0xffe0, 0xffe6},   Range{0x1f300, 0x1f64f}, Range{0x1f680, 0x1f6ff},
                           Range{0x1f900, 0x1f9ff}, Range{0x20000, 0x3fffd}, Range{0x2705, 0x2705},   Range{0x274c, 0x274c}};
constexpr std::array kCombining{Range{0x0300, 0x036f}, Range{0x0483, 0x0489}, Range{0x0591, 0x05bd}, Range{0x064b, 0x065f},
                                Range{0x200b, 0x200f}, Range{0x20d0, 0x20ff}, Range{0xfe00, 0xfe0f}, Range{0xfe20, 0xfe2f}};

template <size_t n>
bool within(const std::array<Range, n>& ranges, char32_t c) {
  return std::any_of(ranges.begin(), ranges.end(), [&](const Range& r) { return r.first <= c && c <= r.last; });
}

// One character at `at` and its length in bytes. Bytes that are no UTF-8 are characters of one byte.
std::pair<char32_t, size_t> decoded(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(at);
  const size_t length = first >= 0xf0 && first < 0xf8 ? 4 : first >= 0xe0 ? 3 : first >= 0xc2 ? 2 : 1;
  if (length == 1 || at + length > text.size()) return {first, 1};
  char32_t c = first & (0xff >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    if ((byte(at + i) & 0xc0) != 0x80) return {first, 1};
    c = c << 6 | (byte(at + i) & 0x3f);
  }
  return {c, length};
}

}  // namespace

size_t display_width(std::string_view text) {
  size_t width = 0;
  for (size_t at = 0; at < text.size();) {
    const auto [c, length] = decoded(text, at);
    width += within(kCombining, c) ? 0 : within(kWide, c) ? 2 : 1;
    at += length;
  }
  return width;
}

std::string shortened(std::string_view text, size_t width) {
  if (display_width(text) <= width || width == 0) return std::string(text);
  const size_t head = (width - 1) / 2;
  size_t begin = 0, used = 0;
  while (begin < text.size()) {
    const size_t length = decoded(text, begin).second, columns = display_width(text.substr(begin, length));
    if (used + columns > head) break;
    used += columns;
    begin += length;
  }
  size_t end = begin;
  while (end < text.size() && used + 1 + display_width(text.substr(end)) > width) end += decoded(text, end).second;
  return std::string(text.substr(0, begin)) + "…" + std::string(text.substr(end));
}

std::string without_controls(std::string_view text, bool lines) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const auto [c, length] = decoded(text, at);
    if (lines && (c == '\n' || c == '\r' || c == '\t')) {
      out += static_cast<char>(c);
    } else if (c < 0x20 || (c >= 0x7f && c < 0xa0)) {
      out += '?';
    } else {
      out += text.substr(at, length);
    }
    at += length;
  }
  return out;
}

std::string in_ascii(std::string_view text) {
  static constexpr std::pair<std::string_view, std::string_view> kPlain[]{
      {"←", "<-"}, {"→", "->"}, {"│", "|"}, {"┤", "+"}, {"•", "o"}, {"◦", "."}, {"◆", "P"}, {"·", "."},  {"█", "#"},
      {"▓", "x"},  {"▒", "+"},  {"░", "-"}, {"✓", "+"}, {"✗", "x"}, {"┃", "|"}, {"■", "#"}, {"…", "..."}};
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t length = decoded(text, at).second;
    const std::string_view c = text.substr(at, length);
    const auto* plain = std::find_if(std::begin(kPlain), std::end(kPlain), [&](const auto& p) { return p.first == c; });
    out += plain == std::end(kPlain) ? c : plain->second;
    at += length;
  }
  return out;
}

}  // namespace plimsoll
