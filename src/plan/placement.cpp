#include "plan/placement.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

namespace plimsoll {

Placement::Placement(const std::vector<BlockCost>& blocks, bool reentrant) : reentrant_(reentrant) {
  std::vector<BlockCost> sorted = blocks;
  // Equal ones in the order of the model: an early block is run again when what the late ones kept is gone.
  std::stable_sort(sorted.begin(), sorted.end(), [](const BlockCost& a, const BlockCost& b) {
    return static_cast<double>(a.kept.count) * b.seconds > static_cast<double>(b.kept.count) * a.seconds;
  });
  for (const BlockCost& b : sorted) order_.push_back(b.module);
}

nlohmann::json Placement::level(size_t count, bool selective) const {
  if (count == 0) return false;
  nlohmann::json out = nlohmann::json::object();
  if (count < order_.size()) out["modules"] = as_ranges({order_.begin(), order_.begin() + static_cast<std::ptrdiff_t>(count)});
  if (selective) out["save"] = "matmuls";
  if (reentrant_ && !selective) out["reentrant"] = true;
  return out.empty() ? nlohmann::json(true) : out;
}

std::vector<std::string> as_ranges(std::vector<std::string> modules) {
  std::map<std::string, std::set<int64_t>> numbered;
  std::set<std::string> others;
  for (const std::string& m : modules) {
    const size_t dot = m.rfind('.');
    int64_t n = 0;
    const char* end = m.data() + m.size();
    if (dot != std::string::npos && std::from_chars(m.data() + dot + 1, end, n).ptr == end && dot + 1 < m.size()) {
      numbered[m.substr(0, dot)].insert(n);
    } else {
      others.insert(m);
    }
  }
  std::vector<std::string> out;
  for (const auto& [parent, numbers] : numbered) {
    for (auto it = numbers.begin(); it != numbers.end();) {
      const int64_t first = *it;
      int64_t last = first;
      while (++it != numbers.end() && *it == last + 1) last = *it;
      out.push_back(parent + "." + std::to_string(first) + (last > first ? "-" + std::to_string(last) : ""));
    }
  }
  out.insert(out.end(), others.begin(), others.end());
  return out;
}

}  // namespace plimsoll
