#include "util/line_diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "util/text.h"

namespace plimsoll {

namespace {

constexpr size_t kContext = 3;

struct Line {
  char mark;  // ' ', '-' or '+'
  std::string text;
};

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> out = split_at(text, '\n');
  if (!out.empty() && out.back().empty()) out.pop_back();
  return out;
}

// The longest common subsequence, between the lines that are the same at both ends.
std::vector<Line> edits(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  size_t head = 0, tail = 0;
  while (head < a.size() && head < b.size() && a[head] == b[head]) ++head;
  while (tail < a.size() - head && tail < b.size() - head && a[a.size() - 1 - tail] == b[b.size() - 1 - tail]) ++tail;
  const size_t n = a.size() - head - tail, m = b.size() - head - tail;
  std::vector<std::vector<uint32_t>> common(n + 1, std::vector<uint32_t>(m + 1));
  for (size_t i = n; i-- > 0;)
    for (size_t j = m; j-- > 0;)
      common[i][j] = a[head + i] == b[head + j] ? common[i + 1][j + 1] + 1 : std::max(common[i + 1][j], common[i][j + 1]);
  std::vector<Line> out;
  for (size_t i = 0; i < head; ++i) out.push_back({' ', a[i]});
  for (size_t i = 0, j = 0; i < n || j < m;) {
    if (i < n && j < m && a[head + i] == b[head + j]) {
      out.push_back({' ', a[head + i]});
      ++i, ++j;
    } else if (i < n && (j == m || common[i + 1][j] >= common[i][j + 1])) {
      out.push_back({'-', a[head + i++]});
    } else {
      out.push_back({'+', b[head + j++]});
    }
  }
  for (size_t i = a.size() - tail; i < a.size(); ++i) out.push_back({' ', a[i]});
  return out;
}

}  // namespace

std::string line_diff(const std::string& before, const std::string& after, const std::string& name) {
  const std::vector<Line> lines = edits(lines_of(before), lines_of(after));
  std::string out;
  size_t old_line = 1, new_line = 1;
  for (size_t i = 0; i < lines.size();) {
    if (lines[i].mark == ' ') {
      ++i, ++old_line, ++new_line;
      continue;
    }
    // A hunk: up to the last change that is within twice the context of the one before it.
    size_t end = i;
    for (size_t k = i; k < lines.size() && k <= end + 2 * kContext; ++k)
      if (lines[k].mark != ' ') end = k;
    const size_t lead = std::min(i, kContext), first = i - lead, last = std::min(lines.size(), end + 1 + kContext);
    const auto count = [&](char skipped) {
      return std::count_if(lines.begin() + static_cast<std::ptrdiff_t>(first), lines.begin() + static_cast<std::ptrdiff_t>(last),
                           [&](const Line& l) { return l.mark != skipped; });
    };
    if (out.empty()) out = fmt::format("--- {0}\n+++ {0}\n", name);
    out += fmt::format("@@ -{},{} +{},{} @@\n", old_line - lead, count('+'), new_line - lead, count('-'));
    for (size_t k = first; k < last; ++k) out += lines[k].mark + lines[k].text + "\n";
    for (; i < last; ++i) {
      old_line += lines[i].mark != '+';
      new_line += lines[i].mark != '-';
    }
  }
  return out;
}

}  // namespace plimsoll
