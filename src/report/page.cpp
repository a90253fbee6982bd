#include "report/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "estimate/peak_tree.h"
#include "job/config.h"
#include "job/distribution.h"
#include "program/captured.h"
#include "report/captured_report.h"
#include "report/card.h"
#include "report/category_look.h"
#include "report/counters.h"
#include "report/estimate_report.h"
#include "report/fit_report.h"
#include "report/headline.h"
#include "report/job_report.h"
#include "report/levers_report.h"
#include "report/page_curve.h"
#include "report/plan_report.h"
#include "report/schema_versions.h"
#include "report/web_files.h"
#include "util/png.h"
#include "util/text.h"

namespace plimsoll {

namespace {

using Json = nlohmann::ordered_json;

Json tree_of(const TreeNode& node) {
  Json j{{"name", node.name}, {"bytes", node.bytes.count}};
  if (node.repeats > 1) j["repeats"] = node.repeats;
  if (!node.children.empty()) {
    Json children = Json::array();
    for (const TreeNode& child : node.children) children.push_back(tree_of(child));
    j["children"] = std::move(children);
  }
  return j;
}

// Amounts have no tensors: one row for each category.
Json levels_tree(const Json& page, const Trace& trace, const std::vector<LiveStorage>& alive) {
  std::map<std::string, int64_t> bytes;
  int64_t all = 0;
  for (const LiveStorage& l : alive) {
    bytes[curve_name(l.category, CurveColours::levels)] += trace.storages[l.id].bytes;
    all += trace.storages[l.id].bytes;
  }
  Json children = Json::array();
  for (const auto& [name, n] : bytes) children.push_back({{"name", name}, {"bytes", n}});
  std::stable_sort(children.begin(), children.end(), [](const Json& a, const Json& b) { return a["bytes"] > b["bytes"]; });
  return {{"name", page["title"]}, {"bytes", all}, {"children", children}};
}

Json bar_json(const doc::Bar& bar) {
  Json parts = Json::array();
  for (const doc::Bar::Part& p : bar.parts) parts.push_back({{"name", p.name}, {"bytes", p.bytes.count}, {"colour", p.colour.hex}});
  return {{"parts", parts}, {"limit_bytes", bar.limit ? Json(bar.limit->count) : Json(nullptr)}, {"limit_name", bar.limit_name}};
}

// What a recorded run has at its peak, in the colours of its curve.
Json bar_of_curve(const Json& timeline, const std::optional<int64_t>& limit) {
  const Json &groups = timeline["groups"], &bytes = timeline["bytes"];
  std::vector<int64_t> sums(groups.size());
  for (size_t i = 0; i < timeline["peak_at"].get<size_t>(); ++i) sums[timeline["group"][i].get<size_t>()] += bytes[i].get<int64_t>();
  Json parts = Json::array();
  for (size_t g = 0; g < sums.size(); ++g)
    if (sums[g] > 0) parts.push_back({{"name", groups[g]["name"]}, {"bytes", sums[g]}, {"colour", groups[g]["colour"]}});
  return {{"parts", parts}, {"limit_bytes", limit ? Json(*limit) : Json(nullptr)}, {"limit_name", "limit"}};
}

// What to type for the run as it is, for each change of the list, and for the plan.
Json commands_json(const JobPage& p) {
  if (!p.command) return nullptr;
  Json levers = Json::array();
  if (p.what_if)
    for (const LeverEffect& e : p.what_if->effects) levers.push_back(p.command(e.lever.settings));
  return {{"run", p.command(Patch())},
          {"levers", levers},
          {"plan", p.plan && p.plan->best ? Json(p.command(p.plan->best->run.changes)) : Json(nullptr)}};
}

Json number_json(const char* name, const ByteRange& r, const std::string& meaning) {
  Json out{{"name", name}};
  out.update(range_json(r));
  out["meaning"] = meaning;
  return out;
}

Json verdict_json(const JobPage& p) {
  const Estimate& e = p.explanation.estimate;
  const std::string need = e.memory ? to_string(e.memory->device.bytes) : to_string(e.peak);
  if (p.explanation.fits.empty())
    return {{"state", "unknown"}, {"sentence", fmt::format("It needs {} on the device.", need)}, {"detail", ""}};
  const Fit& f = p.explanation.fits.front();
  const std::string has = f.device.capacity ? to_string(f.device.capacity->bytes) : "memory that is not known";
  const std::string detail = f.reason + (f.failure ? fmt::format("; {} in {}{}", f.failure->step, phase_name(f.failure->phase),
                                                                 f.failure->module.empty() ? "" : ", " + f.failure->module)
                                                   : "");
  const char* words = f.verdict == Verdict::fits           ? "It fits"
                      : f.verdict == Verdict::tight        ? "It is tight"
                      : f.verdict == Verdict::does_not_fit ? "It does not fit"
                                                           : "Not known whether it fits";
  return {{"state", to_string(f.verdict)},
          {"sentence", fmt::format("{} on {}: it needs {}, and there is {}.", words, f.device.name, to_string(f.memory.device.bytes), has)},
          {"detail", detail}};
}

// Figures that stand for what no simulation knows.
Json assumptions_of(const JobPage& p) {
  const Estimate& e = p.explanation.estimate;
  Json out = Json::array();
  if (e.memory)
    for (const Overhead& o : e.memory->overheads)
      out.push_back(fmt::format("{}: {} ({} to {}), from {}.", o.name, to_string(o.range.bytes), to_string(o.range.low),
                                to_string(o.range.high), o.source));
  if (e.device.empty()) out.push_back("No device was named: overheads and workspaces are those of most NVIDIA cards.");
  if (!e.xla && e.job.alloc_conf.empty()) out.push_back("PyTorch's caching allocator with its default settings.");
  if (e.job.captured) {
    for (std::string& line : assumptions_of(e.job)) out.push_back(line + ".");
    out.push_back(captured_certainty(e.job));
  }
  if (e.job.compile) out.push_back("torch.compile: an interval between the eager run and one that keeps only what matrix products need.");
  if (p.plan && p.plan->as_is.need.time)
    for (const std::string& a : p.plan->as_is.need.time->assumptions) out.push_back("Time of a step: " + a + ".");
  return out;
}

Json not_modelled_of(const Estimate& e) {
  Json out = Json::array();
  if (e.xla) {
    out.push_back("XLA's scheduler: temporaries are modelled by fusion and live ranges, and have an interval.");
  } else {
    out.push_back("Memory that other programs take on the device, unless --in-use says so.");
    out.push_back("Kernels that a library loads or compiles during the run; their usual share is in the overhead.");
    if (!e.job.captured) out.push_back("Your script's own tensors: metrics, logged losses, caches that the usual loop does not have.");
  }
  if (world_size(e.job) > 1) out.push_back("Buffers of NCCL beyond the overhead's row; they depend on the topology.");
  return out;
}

std::vector<std::string> step_names_of(const Estimate& e) {
  std::vector<std::string> out;
  for (const StepEstimate& s : e.steps) out.push_back(s.name);
  return out;
}

Json origins_json(const Explanation& x) {
  Json out = Json::array();
  const auto add = [&](const char* part, const std::vector<ExplainedValue>& values) {
    for (const ExplainedValue& v : values) out.push_back({{"part", part}, {"name", v.name}, {"value", v.value}, {"origin", v.origin}});
  };
  add("run", x.settings);
  add("model", x.config);
  return out;
}

void add_leaves(const Json& node, const std::string& category, const std::string& module, const std::string& op, int depth,
                std::string& out) {
  const auto quoted = [](const std::string& text) {
    std::string field;
    for (const char c : text) field += c == '"' ? "\"\"" : std::string(1, c);
    return '"' + field + '"';
  };
  const std::string name = node["name"].get<std::string>();
  if (!node.contains("children")) {
    out += fmt::format("{},{},{},{},{},{}\n", quoted(category), quoted(module), quoted(op), quoted(name), node.value("repeats", 1),
                       node["bytes"].get<int64_t>());
    return;
  }
  for (const Json& child : node["children"]) {
    const std::string child_name = child["name"].get<std::string>();
    if (depth == 0) {
      add_leaves(child, child_name, "", "", 1, out);
    } else if (child_name.ends_with("()")) {
      add_leaves(child, category, module, child_name.substr(0, child_name.size() - 2), depth + 1, out);
    } else {
      add_leaves(child, category, module.empty() ? child_name : module + "." + child_name, op, depth + 1, out);
    }
  }
}

// For the head of a page, where neither an element nor a placeholder may begin.
std::string attribute_text(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '<' || c == '&' || c == '{' || c == '"' ? fmt::format("&#{};", int{c}) : std::string(1, c);
  return out;
}

void replace(std::string& text, std::string_view what, std::string_view with) {
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += with.size()) text.replace(at, what.size(), with);
}

}  // namespace

Json page_json(const JobPage& p) {
  const Explanation& x = p.explanation;
  const Estimate& e = x.estimate;
  const Timeline timeline = ideal_timeline(p.trace);
  const int64_t at = timeline.steps.at(std::min(e.worst, timeline.steps.size() - 1)).at_event;
  const MemoryCurve curve = memory_curve(p.trace, at, parse_alloc_conf(e.job.alloc_conf), !e.xla);
  const Fit* fit = x.fits.empty() ? nullptr : &x.fits[0];
  Json page{{"schema", kReportSchema},
            {"command", "report"},
            {"kind", "job"},
            {"title", e.job.model},
            {"subtitle", recipe_text(e.job, e.sample, with_commas(e.parameters))},
            {"headline", fit ? headline_text(*fit) : headline_text(e)},
            {"verdict", verdict_json(p)},
            {"capacity", fit && fit->device.capacity ? Json(fit->device.capacity->bytes.count) : Json(nullptr)},
            {"bar", bar_json(memory_bar(e, fit))},
            {"commands", commands_json(p)},
            {"numbers", Json::array()}};
  if (e.memory) {
    const Counters& counters = counters_of(e);
    page["numbers"].push_back(number_json("allocated", e.memory->allocated, std::string(counters.allocated) + ": tensors"));
    page["numbers"].push_back(number_json("reserved", e.memory->reserved, std::string(counters.reserved) + ": with the allocator's cache"));
    page["numbers"].push_back(number_json("device", e.memory->device, std::string(counters.device) + ": with the context and libraries"));
  }
  page["measured"] = p.measured ? measured_json(*p.measured, curve) : Json(nullptr);
  page["estimate"] = estimate_json(e);
  add_curve(page, p.trace, curve, CurveColours::categories, step_names_of(e));
  page["tree"] = tree_of(tensor_tree(p.trace, alive_at(p.trace, at), e.job.model));
  page["ranks"] = Json::array();
  for (const PageRank& r : p.ranks)
    page["ranks"].push_back({{"name", r.name},
                             {"allocated", range_json(r.memory.allocated)},
                             {"reserved", range_json(r.memory.reserved)},
                             {"device", range_json(r.memory.device)}});
  std::vector<Fit> fits = x.fits;
  fits.insert(fits.end(), p.table.begin(), p.table.end());
  page["fits"] = fits_json(fits);
  page["asked"] = x.fits.size();
  page["what_if"] = p.what_if ? what_if_json(*p.what_if) : Json(nullptr);
  page["plan"] = p.plan ? plan_json(*p.plan) : Json(nullptr);
  page["origins"] = origins_json(x);
  page["findings"] = findings_json(e.job);
  page["executions"] = p.executions;
  page["tables"] = Json::array();
  page["assumptions"] = assumptions_of(p);
  page["not_modelled"] = not_modelled_of(e);
  return page;
}

Json page_json(const RunPage& p) {
  Json page{{"schema", kReportSchema},
            {"command", "report"},
            {"kind", p.kind},
            {"title", p.title},
            {"subtitle", p.subtitle},
            {"headline", p.sentence},
            {"verdict", {{"state", p.state}, {"sentence", p.sentence}, {"detail", ""}}},
            {"capacity", p.limit ? Json(*p.limit) : Json(nullptr)},
            {"bar", nullptr},
            {"commands", nullptr},
            {"numbers", Json::array()}};
  for (const auto& [name, bytes] : p.numbers)
    page["numbers"].push_back({{"name", name}, {"bytes", bytes}, {"low_bytes", bytes}, {"high_bytes", bytes}, {"meaning", ""}});
  page["measured"] = nullptr;
  page["estimate"] = nullptr;
  add_curve(page, p.trace, p.curve, p.colours, {});
  page["bar"] = bar_of_curve(page["timeline"], p.limit);
  page["tree"] = p.colours == CurveColours::levels   ? levels_tree(page, p.trace, p.alive)
                 : p.colours == CurveColours::places ? tree_of(place_tree(p.trace, p.alive, p.title))
                                                     : tree_of(tensor_tree(p.trace, p.alive, p.title));
  page["ranks"] = page["fits"] = page["origins"] = page["findings"] = Json::array();
  page["asked"] = 0;
  page["what_if"] = page["plan"] = nullptr;
  page["executions"] = 0;
  page["tables"] = Json::array();
  for (const PageTable& t : p.tables)
    page["tables"].push_back({{"title", t.title}, {"note", t.note}, {"columns", t.columns}, {"rows", t.rows}});
  page["assumptions"] = p.notes;
  page["not_modelled"] = Json::array();
  return page;
}

// "<" never stands in the data as it is, so that no name can end the element it is in.
std::string page_html(const Json& page) {
  std::string data;
  for (const char c : page.dump(-1, ' ', false, Json::error_handler_t::replace)) data += c == '<' ? "\\u003c" : std::string(1, c);
  const std::string title = attribute_text(page["title"].get<std::string>());
  std::string out(web_report_html());
  replace(out, "{{css}}", web_report_css());
  replace(out, "{{js}}", web_report_js());
  replace(out, "{{title}}", title);
  replace(out, "{{description}}", attribute_text(page["headline"].get<std::string>()));
  replace(out, "{{picture}}", data_address(card_png(page)));
  replace(out, "{{data}}", data);
  return out;
}

doc::Document page_document(const Json& page) {
  using doc::Kind;
  const auto text = [](const Json& value) { return value.get<std::string>(); };
  const auto sizes = [&](const Json& rows) {
    doc::Table out{{{"part"}, {"size", Kind::size}, {"bytes", Kind::number}}};
    for (const Json& n : rows) {
      const int64_t bytes = n["bytes"].get<int64_t>();
      out.rows.push_back({{text(n["name"]), Bytes{bytes}, doc::Count{bytes}}});
    }
    return out;
  };
  doc::Document out{"Memory of " + text(page["title"]), text(page["subtitle"])};
  out.blocks = {doc::Paragraph{text(page["verdict"]["sentence"])}, sizes(page["numbers"]), doc::Heading{"What is alive at the peak"},
                sizes(page["tree"].value("children", Json::array()))};
  for (const Json& t : page["tables"]) {
    doc::Table table;
    for (const Json& c : t["columns"]) table.columns.push_back({text(c)});
    for (const Json& row : t["rows"]) {
      table.rows.emplace_back();
      for (const Json& c : row) table.rows.back().cells.emplace_back(text(c));
    }
    doc::append(out.blocks, {doc::Heading{text(t["title"]), text(t["note"])}, std::move(table)});
  }
  if (page["assumptions"].empty()) return out;
  doc::List notes;
  for (const Json& note : page["assumptions"]) notes.items.emplace_back(text(note));
  doc::append(out.blocks, {doc::Heading{"Notes"}, std::move(notes)});
  return out;
}

std::string page_csv(const Json& page) {
  std::string out = "category,module,op,tensor,count,bytes\n";
  add_leaves(page["tree"], "", "", "", 0, out);
  return out;
}

}  // namespace plimsoll
