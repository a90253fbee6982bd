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
constexpr int kDeepest = 2;

// The most in each of so many slices of the run.
doc::Curve curve_of(const Json& timeline) {
  const Json& changes = timeline["bytes"];
  const size_t n = std::min(kSlices, changes.size());
  doc::Curve out{"over time", {}, Bytes{timeline["peak_bytes"].get<int64_t>()}};
  int64_t now = 0;
  for (size_t i = 0; i < n; ++i) {
    int64_t top = now;
    for (size_t k = i * changes.size() / n; k < (i + 1) * changes.size() / n; ++k) top = std::max(top, now += changes[k].get<int64_t>());
    out.levels.push_back({Bytes{top}, ""});
  }
  return out;
}

// The largest parts; the others are summed into one.
std::vector<doc::Branch> branches_of(const Json& node, int64_t all, int depth) {
  std::vector<doc::Branch> out;
  const Json children = node.value("children", Json::array());
  int64_t rest = 0;
  for (size_t i = 0; i < children.size(); ++i) {
    const Json& child = children[i];
    const int64_t bytes = child["bytes"].get<int64_t>();
    if (i >= kRows || bytes * 200 < all) {
      rest += bytes;
      continue;
    }
    const std::string repeats = child.contains("repeats") ? fmt::format(" (x {})", child["repeats"].get<int64_t>()) : "";
    out.push_back({child["name"].get<std::string>() + repeats, Bytes{bytes}});
    if (depth < kDeepest) out.back().children = branches_of(child, all, depth + 1);
  }
  if (rest > 0) out.push_back({"[smaller]", Bytes{rest}});
  return out;
}

}  // namespace

doc::Document run_document(const Json& page) {
  doc::Document out{page["title"].get<std::string>(), page["subtitle"].get<std::string>()};
  doc::Facts numbers;
  for (const Json& n : page["numbers"]) {
    const int64_t bytes = n["bytes"].get<int64_t>();
    numbers.facts.push_back({n["name"].get<std::string>(), Bytes{bytes}, doc::dim(with_commas(bytes) + " bytes")});
  }
  out.blocks.emplace_back(std::move(numbers));
  if (doc::Curve curve = curve_of(page["timeline"]); !curve.levels.empty()) out.blocks.emplace_back(std::move(curve));
  const int64_t all = page["tree"]["bytes"].get<int64_t>();
  doc::append(out.blocks, {doc::Paragraph{page["verdict"]["sentence"].get<std::string>()}, doc::Heading{"What is alive at the peak"},
                           doc::Tree{branches_of(page["tree"], all, 0), Bytes{all}}});
  for (const Json& note : page["assumptions"]) out.blocks.emplace_back(doc::Paragraph{doc::dim(note.get<std::string>())});
  return out;
}

doc::Document stats_document(const MemoryStats& s) {
  doc::Facts facts;
  const auto row = [&](const char* name, std::optional<int64_t> bytes, const char* meaning, int level = 0) {
    if (bytes) facts.facts.push_back({name, Bytes{*bytes}, doc::dim(meaning), level});
  };
  row("allocated peak", s.allocated_peak, "the most that tensors had at once: max_memory_allocated()");
  row("reserved peak", s.reserved_peak, "the most that was held from the device: max_memory_reserved()");
  row("allocated now", s.allocated, "");
  row("reserved now", s.reserved, "");
  row("in no tensor", s.reserved - s.allocated, "kept for later, or lost to fragmentation", 1);
  row("not releasable", s.inactive_split, "of it, free pieces of segments in use", 1);
  if (s.requested) row("rounding", s.allocated - *s.requested, "of the allocated bytes, blocks larger than what was asked for", 1);
  const auto count = [&](const char* name, std::optional<int64_t> n, const char* meaning) {
    if (n) facts.facts.push_back({name, doc::Count{*n}, doc::dim(meaning)});
  };
  count("segments", s.segments, "");
  count("retries", s.retries, "times an allocation failed and the cache was emptied to make room");
  count("out of memory", s.ooms, "times that was not enough");
  doc::List findings;
  const Json json = stats_json(s);
  for (const Json& sentence : json["findings"]) findings.items.emplace_back(sentence.get<std::string>());
  return {"torch.cuda.memory_stats()", {}, {std::move(facts), doc::Heading{"What it means"}, std::move(findings)}};
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
