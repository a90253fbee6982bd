#include "util/text.h"

#include <algorithm>
#include <numeric>

namespace plimsoll {

namespace {

// Damerau-Levenshtein distance with adjacent swaps, as ninja and git use it for suggestions.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  std::iota(last.begin(), last.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before = last;
    last = row;
  }
  return last[b.size()];
}

}  // namespace

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

std::string printable(std::string_view text, size_t most) {
  std::string out(text.substr(0, most));
  for (char& c : out)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  return text.size() > most ? out + "..." : out;
}

std::vector<std::string> split_at(std::string_view text, char separator) {
  std::vector<std::string> parts{""};
  for (char c : text) {
    if (c == separator) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

std::string join(const std::vector<std::string>& parts, std::string_view separator) {
  std::string out;
  for (size_t i = 0; i < parts.size(); ++i) out += (i ? std::string(separator) : "") + parts[i];
  return out;
}

std::string did_you_mean(std::string_view text, const std::vector<std::string>& known) {
  const std::string wanted = lower(text.substr(0, 64));
  std::string best;
  size_t best_distance = std::max<size_t>(2, wanted.size() / 3) + 1;
  for (const std::string& name : known) {
    const std::string candidate = lower(name);
    const bool extends = candidate.size() >= 3 && wanted.rfind(candidate, 0) == 0;  // "batchsize" for "batch"
    const size_t d = extends ? 1 : distance(wanted, candidate);
    if (d < best_distance) {
      best_distance = d;
      best = name;
    }
  }
  if (!best.empty()) return "did you mean '" + best + "'?";
  std::vector<std::string> some(known.begin(), known.begin() + static_cast<long>(std::min<size_t>(known.size(), 12)));
  return "known: " + join(some, ", ") + (known.size() > some.size() ? ", ..." : "");
}

std::vector<std::string> nearest_first(std::string_view text, std::vector<std::string> names) {
  const std::string wanted = lower(text.substr(0, 64));
  std::vector<std::pair<size_t, std::string>> ranked;
  for (std::string& name : names) ranked.emplace_back(distance(wanted, lower(name)), std::move(name));
  std::sort(ranked.begin(), ranked.end());
  std::transform(ranked.begin(), ranked.end(), names.begin(), [](auto& item) { return std::move(item.second); });
  return names;
}

}  // namespace plimsoll
