#include "util/text.h"

#include <algorithm>

#include "util/edit_distance.h"

namespace plimsoll {

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
    const size_t d = extends ? 1 : edit_distance(wanted, candidate);
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
  for (std::string& name : names) ranked.emplace_back(edit_distance(wanted, lower(name)), std::move(name));
  std::sort(ranked.begin(), ranked.end());
  std::transform(ranked.begin(), ranked.end(), names.begin(), [](auto& item) { return std::move(item.second); });
  return names;
}

}  // namespace plimsoll
