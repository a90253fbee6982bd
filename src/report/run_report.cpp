#include "report/run_report.h"
#include "report/schema_versions.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "report/sizes.h"
#include "util/bytes.h"

namespace plimsoll {

namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kSlices = 64, kRows = 8;
constexpr int kBar = 24;

// The most in each of so many slices of the run.
std::string curve_text(const Json& timeline, const Style& style) {
  const Json& changes = timeline["bytes"];
  const size_t n = std::min(kSlices, changes.size());
  if (n == 0) return "";
  const double most = static_cast<double>(std::max<int64_t>(1, timeline["peak_bytes"].get<int64_t>()));
  std::string out;
  int64_t now = 0;
  for (size_t i = 0; i < n; ++i) {
    int64_t top = now;
    for (size_t k = i * changes.size() / n; k < (i + 1) * changes.size() / n; ++k) top = std::max(top, now += changes[k].get<int64_t>());
    out += style.level(static_cast<double>(top) / most * 0.999);
  }
  return fmt::format("  over time       {}\n", out);
}

void tree_rows(const Json& node, int64_t all, int depth, int deepest, const Style& style, std::string& out) {
  const Json children = node.value("children", Json::array());
  int64_t rest = 0;
  for (size_t i = 0; i < children.size(); ++i) {
    const int64_t bytes = children[i]["bytes"].get<int64_t>();
    if (i >= kRows || bytes * 200 < all) {
      rest += bytes;
      continue;
    }
    const std::string name = children[i]["name"].get<std::string>() +
                             (children[i].contains("repeats") ? fmt::format(" (x {})", children[i]["repeats"].get<int64_t>()) : "");
    out += fmt::format("{:<52} {:>11} {:>8}  {}\n", std::string(static_cast<size_t>(2 * depth), ' ') + name, size_text(bytes),
                       percent_of(Bytes{bytes}, Bytes{all}),
                       style.bar(static_cast<double>(bytes) / static_cast<double>(std::max<int64_t>(all, 1)), kBar));
    if (depth < deepest) tree_rows(children[i], all, depth + 1, deepest, style, out);
  }
  if (rest > 0)
    out += fmt::format("{:<52} {:>11} {:>8}\n", std::string(static_cast<size_t>(2 * depth), ' ') + "[smaller]", size_text(rest),
                       percent_of(Bytes{rest}, Bytes{all}));
}

}  // namespace

std::string run_text(const Json& page, const Style& style) {
  std::string out = style.bold(page["title"].get<std::string>()) + "  " + page["subtitle"].get<std::string>() + "\n\n";
  for (const Json& n : page["numbers"])
    out += fmt::format("  {:<14}  {:>11}   {}\n", n["name"].get<std::string>(), size_text(n["bytes"].get<int64_t>()),
                       style.dim(with_commas(n["bytes"].get<int64_t>()) + " bytes"));
  out += curve_text(page["timeline"], style);
  out += "  " + page["verdict"]["sentence"].get<std::string>() + "\n\n" + style.bold("What is alive at the peak") + "\n";
  tree_rows(page["tree"], page["tree"]["bytes"].get<int64_t>(), 1, 3, style, out);
  if (!page["assumptions"].empty()) out += "\n";
  for (const Json& note : page["assumptions"]) out += style.dim(note.get<std::string>()) + "\n";
  return out;
}

std::string stats_text(const MemoryStats& s, const Style& style) {
  std::string out = style.bold("torch.cuda.memory_stats()") + "\n\n";
  const auto row = [&](const char* name, std::optional<int64_t> bytes, const char* meaning) {
    if (bytes) out += fmt::format("  {:<18} {:>11}   {}\n", name, size_text(*bytes), style.dim(meaning));
  };
  row("allocated peak", s.allocated_peak, "the most that tensors had at once: max_memory_allocated()");
  row("reserved peak", s.reserved_peak, "the most that was held from the device: max_memory_reserved()");
  row("allocated now", s.allocated, "");
  row("reserved now", s.reserved, "");
  row("  in no tensor", s.reserved - s.allocated, "kept for later, or lost to fragmentation");
  row("  not releasable", s.inactive_split, "of it, free pieces of segments in use");
  if (s.requested) row("  rounding", s.allocated - *s.requested, "of the allocated bytes, blocks larger than what was asked for");
  const auto count = [&](const char* name, std::optional<int64_t> n, const char* meaning) {
    if (n) out += fmt::format("  {:<18} {:>11}   {}\n", name, with_commas(*n), style.dim(meaning));
  };
  count("segments", s.segments, "");
  count("retries", s.retries, "times an allocation failed and the cache was emptied to make room");
  count("out of memory", s.ooms, "times that was not enough");
  out += "\n";
  const Json json = stats_json(s);
  for (const Json& sentence : json["findings"]) out += "  " + sentence.get<std::string>() + "\n";
  return out;
}

Json stats_json(const MemoryStats& s) {
  const auto optional = [](std::optional<int64_t> v) { return v ? Json(*v) : Json(nullptr); };
  Json findings = Json::array();
  const int64_t idle = s.reserved - s.allocated;
  if (s.ooms.value_or(0) > 0) findings.push_back(fmt::format("It ran out of memory {} {}.", *s.ooms, *s.ooms == 1 ? "time" : "times"));
  if (s.retries.value_or(0) > 0)
    findings.push_back(
        fmt::format("The cache was emptied {} {} to make room: the run is at the limit of the device, and each time it waits for the GPU.",
                    *s.retries, *s.retries == 1 ? "time" : "times"));
  if (s.reserved > 0 && s.inactive_split.value_or(0) * 10 > s.reserved)
    findings.push_back(fmt::format("{} of the held memory are holes between tensors: expandable_segments:True would let them be used.",
                                   percent_of(Bytes{*s.inactive_split}, Bytes{s.reserved})));
  if (s.reserved > 0 && idle * 3 > s.reserved)
    findings.push_back(fmt::format("{} of {} are held and in no tensor now; torch.cuda.empty_cache() gives back what is not in between.",
                                   size_text(idle), size_text(s.reserved)));
  if (s.allocated_peak > 2 * s.allocated && s.allocated > 0)
    findings.push_back(fmt::format("The peak is {:.1f} times what is allocated now: it passes within a step.",
                                   static_cast<double>(s.allocated_peak) / static_cast<double>(s.allocated)));
  if (findings.empty()) findings.push_back("Nothing stands out: what is held is what tensors need.");
  return {{"schema", kExplainSchema},
          {"command", "explain"},
          {"kind", "memory_stats"},
          {"allocated_bytes", s.allocated},
          {"allocated_peak_bytes", s.allocated_peak},
          {"reserved_bytes", s.reserved},
          {"reserved_peak_bytes", s.reserved_peak},
          {"requested_bytes", optional(s.requested)},
          {"active_bytes", optional(s.active)},
          {"inactive_split_bytes", optional(s.inactive_split)},
          {"fragmentation_bytes", idle},
          {"segments", optional(s.segments)},
          {"retries", optional(s.retries)},
          {"out_of_memory", optional(s.ooms)},
          {"findings", findings}};
}

}  // namespace plimsoll
