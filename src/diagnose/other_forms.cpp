#include "diagnose/other_forms.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "diagnose/words.h"
#include "util/text.h"

namespace plimsoll {

namespace {

// A terminal is at least so wide, and a screen no wider; a message is not broken into more lines.
constexpr size_t kNarrowest = 40, kWidest = 400, kPastedLines = 60;

std::vector<std::string_view> lines_in(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.size(), text.find('\n'));
    std::string_view line = text.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    lines.push_back(line);
    text.remove_prefix(std::min(text.size(), end + 1));
  }
  return lines;
}

// What comments and quotations begin with, in shells, Python, C, mails, SQL and TeX.
std::string_view without_marker(std::string_view line) {
  const std::string_view inside = line.substr(std::min(line.size(), line.find_first_not_of(" \t")));
  for (const std::string_view marker : {"//", "--", "#", ">", ";", "%", "|"})
    if (inside.starts_with(marker)) return inside.substr(marker.size() + (inside.substr(marker.size()).starts_with(' ') ? 1 : 0));
  return line;
}

// Nearly every line is a comment: the log inside of it.
std::string uncommented(const std::vector<std::string_view>& lines) {
  size_t marked = 0, filled = 0;
  std::string out;
  for (const std::string_view line : lines) {
    const std::string_view inside = without_marker(line);
    filled += trimmed(line).empty() ? 0 : 1;
    marked += inside.size() < line.size() ? 1 : 0;
    out.append(inside).append("\n");
  }
  return marked > 0 && marked * 10 >= filled * 9 ? out : "";
}

// Every text of a document, in its order.
void collect_strings(const nlohmann::ordered_json& value, std::string& out, int depth) {
  if (value.is_string()) out += value.get_ref<const std::string&>() + "\n";
  if (value.is_structured() && depth < 32)
    for (const auto& inside : value) collect_strings(inside, out, depth + 1);
}

std::string texts_of_json(std::string_view text) {
  const std::string_view begin = text.substr(std::min(text.size(), text.find_first_not_of(" \t\r\n")));
  if (!begin.starts_with('{') && !begin.starts_with('[') && !begin.starts_with('"')) return "";
  const auto document = nlohmann::ordered_json::parse(begin, nullptr, false);
  std::string out;
  if (!document.is_discarded()) collect_strings(document, out, 0);
  return out;
}

// Copied from a terminal: a line as wide as the widest goes on in the next, and one that lost the space at its end as well.
std::string unwrapped(const std::vector<std::string_view>& lines) {
  size_t width = 0;
  for (const std::string_view line : lines) width = std::max(width, line.size());
  if (lines.size() < 2 || width < kNarrowest || width > kWidest) return "";
  std::string out;
  for (const std::string_view line : lines) out.append(line).append(line.size() == width ? "" : line.size() + 1 == width ? " " : "\n");
  return out;
}

std::string on_one_line(const std::vector<std::string_view>& lines) {
  if (lines.size() < 2 || lines.size() > kPastedLines) return "";
  std::string out;
  for (const std::string_view line : lines) out.append(trimmed(line)).append(" ");
  return out;
}

}  // namespace

std::vector<OtherForm> other_forms(std::string_view text) {
  std::vector<OtherForm> out;
  const auto add = [&](std::string form, bool mends = false) {
    if (!form.empty()) out.push_back({std::move(form), mends});
  };
  add(texts_of_json(text));
  const std::string inside = uncommented(lines_in(text));
  add(inside);
  const std::vector<std::string_view> lines = lines_in(inside.empty() ? text : inside);
  add(unwrapped(lines), true);
  add(on_one_line(lines));
  return out;
}

}  // namespace plimsoll
