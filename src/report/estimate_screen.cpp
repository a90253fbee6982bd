#include "report/estimate_screen.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "report/captured_report.h"
#include "report/category_look.h"
#include "report/counters.h"
#include "report/fit_report.h"
#include "report/headline.h"
#include "util/text.h"

namespace plimsoll {

namespace {

using Json = nlohmann::ordered_json;

// What a lever costs in few words: "about 33 % more time", "time: little".
std::string short_cost(const std::string& cost) {
  if (cost.starts_with("none")) return "no slower";
  const std::string words = cost.substr(0, std::min(cost.find(':'), cost.find(';')));
  return words.find("time") != std::string::npos ? words : "time: " + words;
}

doc::Text change_text(const LeverEffect& e) {
  std::string cost = short_cost(e.lever.cost);
  if (e.lever.kind != LeverKind::same_result) cost = to_string(e.lever.kind) + ("; " + cost);
  return doc::bold(e.lever.settings.flags()) + fmt::format(" ({}; {})", gib_text(e.device), cost);
}

std::string on_device(const EstimateScreen& s) { return s.fits.size() > 1 ? " " + device_name(s.fits[0].device.name) : ""; }

void add_change(doc::Blocks& out, const EstimateScreen& s) {
  if (!s.change) return;
  if (s.change->fits) {
    out.emplace_back(doc::Paragraph{fmt::format("cheapest change that fits{}: ", on_device(s)) + change_text(*s.change->fits)});
    return;
  }
  doc::Text none = fmt::format("no single change makes it fit{}", on_device(s).empty() ? "" : " on" + on_device(s));
  if (s.change->tight) none += "; the cheapest that makes it tight: " + change_text(*s.change->tight);
  out.emplace_back(doc::Paragraph{none + "; several together:"});
  out.emplace_back(doc::Command{s.fix_command, true});
}

void add_insights(doc::Blocks& out, const std::vector<Insight>& found) {
  if (found.empty()) return;
  doc::List list;
  for (size_t i = 0; i < std::min(found.size(), kMostInsights); ++i) {
    const Insight& one = found[i];
    doc::Text line = one.text;
    if (!one.flags.empty()) line += ": " + doc::bold(one.flags);
    list.items.push_back(std::move(line));
  }
  out.emplace_back(doc::Heading{"What stands out"});
  out.emplace_back(std::move(list));
}

doc::Table devices_table(const std::vector<Fit>& fits) {
  using doc::Kind;
  doc::Table out{{{"device"}, {"has", Kind::size}, {"needs", Kind::size}, {"margin", Kind::size}, {"verdict", Kind::number}}};
  out.fitted = true;
  for (const Fit& f : fits)
    out.rows.push_back({{f.device.name, f.device.capacity ? doc::Text(f.device.capacity->bytes) : "?", f.memory.device.bytes,
                         f.device.capacity ? doc::Text(doc::Change{f.margin}) : "?", verdict_text(f.verdict)}});
  return out;
}

void add_verdicts(doc::Blocks& out, const EstimateScreen& s) {
  const std::string grade = s.estimate.job.captured ? "; " + grade_text(s.estimate.job) : "";
  if (s.fits.empty()) {
    out.emplace_back(doc::Paragraph{headline(s.estimate) + grade});
  } else if (s.fits.size() <= kMostHeadlines) {
    for (const Fit& f : s.fits) out.emplace_back(doc::Paragraph{headline(f) + grade});
  } else {
    const auto fitting = std::count_if(s.fits.begin(), s.fits.end(), [](const Fit& f) { return f.verdict == Verdict::fits; });
    out.emplace_back(doc::Paragraph{doc::bold(fmt::format("fits {} of {} devices", fitting, s.fits.size()))});
    out.emplace_back(devices_table(s.fits));
  }
}

// Whose memory the bar is of: of many devices none.
const Fit* first_device(const EstimateScreen& s) { return s.fits.empty() || s.fits.size() > kMostHeadlines ? nullptr : &s.fits[0]; }

void add_bar(doc::Blocks& out, const EstimateScreen& s) {
  const Fit* fit = first_device(s);
  if (!fit && !s.estimate.memory) return;
  out.emplace_back(memory_bar(s.estimate, fit));
}

const DeviceMemory* memory_of(const EstimateScreen& s) {
  const Fit* fit = first_device(s);
  return fit ? &fit->memory : s.estimate.memory ? &*s.estimate.memory : nullptr;
}

// One line for each counter, in the same unit.
doc::Table counters_table(const DeviceMemory& m, const Counters& names) {
  using doc::Kind;
  doc::Table out{{{""}, {"", Kind::size}, {"", Kind::number}, {""}}};
  out.fitted = true;
  const doc::Unit unit = doc::unit_for(m.device.bytes);
  const auto row = [&](const char* name, const ByteRange& r, const std::string& meaning) {
    const std::string low = doc::print(doc::In{r.low, unit});
    doc::Text interval;
    if (!r.is_exact()) interval = doc::dim(low.substr(0, low.find(' ')) + " to " + doc::print(doc::Text(doc::In{r.high, unit})));
    out.rows.push_back({{name, doc::In{r.bytes, unit}, interval, doc::dim(meaning)}});
  };
  row("allocated", m.allocated, names.allocated);
  row("reserved", m.reserved, names.reserved);
  row("device", m.device, names.device);
  return out;
}

// Rows of less than half a percent are one.
doc::Tree alive_tree(const Estimate& e) {
  doc::Tree out{{}, e.peak, true};
  Bytes other;
  for (const TreeNode& c : e.by_category.children) {
    if (c.bytes.count * 200 < e.peak.count)
      other += c.bytes;
    else
      out.branches.push_back({c.name, c.bytes});
  }
  if (other.count * 2000 >= e.peak.count) out.branches.push_back({"other", other});
  return out;
}

struct NamedNode {
  std::string path;
  const TreeNode* node;
};

// Down to where the memory parts, or where layers repeat.
std::vector<NamedNode> largest_modules(const Estimate& e, size_t count) {
  std::vector<NamedNode> out;
  for (const TreeNode& c : e.by_module.children) out.push_back({c.name, &c});
  const auto largest_first = [](const NamedNode& a, const NamedNode& b) { return a.node->bytes > b.node->bytes; };
  std::stable_sort(out.begin(), out.end(), largest_first);
  while (!out.empty() && out[0].node->repeats == 1 && !out[0].node->children.empty() && out[0].node->bytes.count * 2 > e.peak.count) {
    const NamedNode top = out[0];
    out.erase(out.begin());
    for (const TreeNode& c : top.node->children) out.push_back({c.name == "[self]" ? top.path : top.path + "." + c.name, &c});
    std::stable_sort(out.begin(), out.end(), largest_first);
  }
  if (out.size() > count) out.resize(count);
  return out;
}

doc::Tree modules_tree(const Estimate& e) {
  doc::Tree out{{}, e.peak, true};
  for (const NamedNode& n : largest_modules(e, 3))
    if (n.node->bytes.count * 200 >= e.peak.count)
      out.branches.push_back({n.node->repeats > 1 ? fmt::format("{} (x {})", n.path, n.node->repeats) : n.path, n.node->bytes});
  return out;
}

std::string in_module(const std::string& module) { return module.empty() ? "" : " of " + module; }

bool is_loss_op(const std::string& op) {
  return op.find("log_softmax") != std::string::npos || op.find("nll_loss") != std::string::npos ||
         op.find("cross_entropy") != std::string::npos;
}

}  // namespace

std::string assumed_text(const Job& job) {
  std::vector<std::string> parts;
  for (const Finding& f : job.findings)
    if (f.effect == Effect::assumed) parts.push_back(f.what);
  return parts.empty() ? "" : "assumed: " + join(parts, ", ");
}

std::string unknown_keys_text(const Job& job) {
  constexpr size_t kMost = 4;
  std::vector<std::string> keys;
  for (const Finding& f : job.findings) {
    if (f.effect != Effect::unknown || f.setting.empty() || !f.what.starts_with("not known")) continue;
    const size_t meant = f.what.find("did you mean");
    keys.push_back(f.setting + (meant == std::string::npos ? "" : " (" + f.what.substr(meant) + ")"));
  }
  if (keys.empty()) return "";
  const std::string more = keys.size() > kMost ? fmt::format(" and {} more", keys.size() - kMost) : "";
  keys.resize(std::min(keys.size(), kMost));
  return "not understood, so not in the answer: " + join(keys, ", ") + more;
}

std::string peak_phrase(const Estimate& e) {
  const std::string& step = e.steps[e.worst].name;
  const std::string loss = e.peak_module.empty() && is_loss_op(e.peak_op) ? ", at the loss" : "";
  switch (e.peak_phase) {
    case Phase::setup: return "before the first step";
    case Phase::forward:
      return (step == "longest sample" ? "in the forward pass of the longest sample" : "in the forward pass" + in_module(e.peak_module)) +
             loss;
    case Phase::backward:
      return (step == "longest sample" ? "in the backward pass of the longest sample" : "in the backward pass" + in_module(e.peak_module)) +
             loss;
    case Phase::optimizer:
      if (e.job.captured) return "in the optimizer step" + in_module(e.peak_module);
      return e.peak_op.starts_with("_foreach") ? fmt::format("in the optimizer step ({}'s foreach temporaries)", e.job.optimizer.name)
                                               : "in the optimizer step" + in_module(e.peak_module);
    case Phase::ema: return "while the moving average is updated";
    case Phase::evaluation: return "in the evaluation" + (e.peak_module.empty() ? "" : ", in " + e.peak_module);
    case Phase::sampling: return "while text is generated";
  }
  return "";
}

std::string headline_text(const EstimateScreen& s) {
  const std::string line = s.fits.empty() ? headline_text(s.estimate) : headline_text(s.fits[0]);
  return s.estimate.job.captured ? line + "; " + grade_text(s.estimate.job) : line;
}

doc::Document screen_head(const EstimateScreen& s) {
  doc::Document out{s.estimate.job.model, recipe_headline(s.estimate)};
  out.note = assumed_text(s.estimate.job);
  if (const std::string unknown = unknown_keys_text(s.estimate.job); !unknown.empty())
    out.blocks.emplace_back(doc::Paragraph{doc::warn(unknown)});
  add_verdicts(out.blocks, s);
  add_bar(out.blocks, s);
  add_change(out.blocks, s);
  add_insights(out.blocks, s.insights);
  return out;
}

doc::Blocks screen_rows(const EstimateScreen& s) {
  const Counters& names =
      first_device(s) ? counters_of(first_device(s)->device.spec.vendor, s.estimate.xla.has_value()) : counters_of(s.estimate);
  doc::Blocks out = s.estimate.job.captured ? assumption_blocks(s.estimate.job) : doc::Blocks{};
  out.emplace_back(doc::Heading{"Peak", peak_phrase(s.estimate)});
  if (const DeviceMemory* m = memory_of(s)) {
    out.emplace_back(counters_table(*m, names));
    if (m->correction) {
      doc::Facts correction;
      add_correction(correction, *m->correction);
      out.emplace_back(std::move(correction));
    }
  }
  out.emplace_back(doc::Heading{"Alive at the peak"});
  out.emplace_back(alive_tree(s.estimate));
  if (doc::Tree modules = modules_tree(s.estimate); !modules.branches.empty()) {
    out.emplace_back(doc::Heading{"Largest modules"});
    out.emplace_back(std::move(modules));
  }
  if (const std::string caution = caution_text(s.estimate); !caution.empty()) out.emplace_back(doc::Paragraph{doc::dim(caution)});
  if (*names.caveat != '\0') out.emplace_back(doc::Paragraph{doc::dim(names.caveat)});
  const Fit* fit = first_device(s);
  if (fit && fit->device.spec.memory == MemoryKind::unified)
    out.emplace_back(doc::Paragraph{doc::dim("The host shares this memory: --unified counts both.")});
  return out;
}

Json insights_json(const std::vector<Insight>& found) {
  Json out = Json::array();
  for (const Insight& i : found) out.push_back({{"name", i.name}, {"text", i.text}, {"bytes", i.bytes.count}, {"flags", i.flags}});
  return out;
}

Json change_json(const std::optional<CheapestChange>& change) {
  if (!change || !change->fits) return nullptr;
  const LeverEffect& e = *change->fits;
  Json settings = Json::object();
  for (const auto& [key, value] : e.lever.settings.in_order()) settings[key] = value;
  return {{"name", e.lever.name}, {"settings", settings},           {"flags", e.lever.settings.flags()}, {"kind", to_string(e.lever.kind)},
          {"cost", e.lever.cost}, {"device_bytes", e.device.count}, {"saving_bytes", e.saving.count}};
}

}  // namespace plimsoll
