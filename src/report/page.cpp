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
#include "report/estimate_report.h"
#include "report/fit_report.h"
#include "report/job_report.h"
#include "report/levers_report.h"
#include "report/plan_report.h"
#include "report/schema_versions.h"
#include "report/web_files.h"
#include "util/text.h"

namespace plimsoll {

namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostPlaces = 9;  // colours of a recorded run, beside "other"

// The names of torch.profiler's memory timeline (torch/profiler/_memory_profiler.py, Category); "": it has none for it.
const char* pytorch_category(Category c) {
  switch (c) {
    case Category::parameter: return "PARAMETER";
    case Category::input: return "INPUT";
    case Category::gradient: return "GRADIENT";
    case Category::optimizer_state: return "OPTIMIZER_STATE";
    case Category::activation: return "ACTIVATION";
    case Category::backward: return "AUTOGRAD_DETAIL";
    case Category::optimizer: return "TEMPORARY";
    case Category::buffer:
    case Category::ema:
    case Category::workspace:
    case Category::ddp_bucket:
    case Category::unsharded_parameter:
    case Category::unsharded_gradient:
    case Category::gather_buffer:
    case Category::reduce_buffer: return "";
  }
  return "";
}

// What a curve is coloured by: categories, or who allocated.
class Groups {
 public:
  using Colours = RunPage::Colours;
  Groups(const Trace& trace, const MemoryCurve& curve, Colours colours) : by_place_(colours == Colours::places) {
    by_place_ ? choose_places(trace, curve) : choose_categories(curve, colours == Colours::pytorch);
  }

  int of(const MemoryChange& c) const { return by_place_ ? place_[c.storage] : category_[static_cast<size_t>(c.category)]; }
  int of(StorageId storage, Category c) const { return by_place_ ? place_[storage] : category_[static_cast<size_t>(c)]; }
  const Json& json() const { return json_; }

 private:
  // In the order of the enumeration, which is about the order of their lives: weights at the bottom.
  void choose_categories(const MemoryCurve& curve, bool pytorch) {
    ByCategory seen{};
    for (const MemoryChange& c : curve.changes) ++seen[static_cast<size_t>(c.category)];
    category_.fill(-1);
    for (size_t c = 0; c < kCategories; ++c) {
      if (seen[c] == 0) continue;
      category_[c] = static_cast<int>(json_.size());
      const std::string theirs = pytorch_category(static_cast<Category>(c)), ours(category_name(static_cast<Category>(c)));
      json_.push_back({{"name", !pytorch ? ours : theirs.empty() ? "Unknown" : theirs}, {"pytorch", theirs}});
    }
  }

  // Those with the most bytes at the peak.
  void choose_places(const Trace& trace, const MemoryCurve& curve) {
    std::map<NameId, int64_t> bytes;
    for (size_t i = 0; i < curve.peak; ++i) bytes[trace.storages[curve.changes[i].storage].op] += curve.changes[i].bytes;
    std::vector<std::pair<int64_t, NameId>> order;
    for (const auto& [op, b] : bytes) order.emplace_back(-b, op);
    std::sort(order.begin(), order.end());
    std::map<NameId, int> chosen;
    for (const auto& [b, op] : order) {
      if (chosen.size() == kMostPlaces || b == 0) break;
      chosen[op] = static_cast<int>(json_.size());
      json_.push_back({{"name", trace.names[op]}, {"pytorch", ""}});
    }
    const int other = static_cast<int>(json_.size());
    json_.push_back({{"name", "other places"}, {"pytorch", ""}});
    for (const StorageRecord& s : trace.storages) {
      const auto it = chosen.find(s.op);
      place_.push_back(it == chosen.end() ? other : it->second);
    }
  }

  bool by_place_;
  Json json_ = Json::array();
  std::array<int, kCategories> category_{};
  std::vector<int> place_;
};

// Who allocated, each once: "transformer.h.3.mlp: addmm (8, 1024, 768) bfloat16".
class Labels {
 public:
  Labels(const Trace& trace, bool places) : trace_(trace), places_(places), label_(trace.storages.size(), -1) {}

  int of(StorageId id) {
    if (label_[id] >= 0) return label_[id];
    const StorageRecord& s = trace_.storages[id];
    const std::string& shape = trace_.names[id < trace_.shapes.size() ? trace_.shapes[id] : 0];
    std::string text = places_ ? "" : trace_.scope_path(s.scope);  // a place says where it is
    text += (text.empty() || s.op == 0 ? "" : ": ") + trace_.names[s.op] + (shape.empty() ? "" : " " + shape);
    const auto [it, added] = index_.try_emplace(std::move(text), static_cast<int>(json_.size()));
    if (added) json_.push_back(it->first);
    return label_[id] = it->second;
  }
  const Json& json() const { return json_; }

 private:
  const Trace& trace_;
  bool places_;
  std::vector<int> label_;
  std::map<std::string, int> index_;
  Json json_ = Json::array();
};

Json marks_json(const MemoryCurve& curve, const std::vector<std::string>& steps) {
  Json out = Json::array();
  size_t step = 0;
  for (const CurveMark& m : curve.marks) {
    const std::string name = !m.step               ? std::string(phase_name(m.phase))
                             : step < steps.size() ? steps[step]
                                                   : fmt::format("step {}", step + 1);
    step += m.step;
    out.push_back({{"at", m.at}, {"kind", m.step ? "step" : "phase"}, {"name", name}});
  }
  return out;
}

Json timeline_of(const MemoryCurve& curve, const Groups& groups, Labels& labels, const std::vector<std::string>& steps) {
  Json group = Json::array(), bytes = Json::array(), label = Json::array(), reserved = Json::array();
  int64_t now = 0, most = 0;
  for (const MemoryChange& c : curve.changes) {
    group.push_back(groups.of(c));
    bytes.push_back(c.bytes);
    label.push_back(labels.of(c.storage));
    now += c.bytes;
    most = std::max(most, now);
  }
  for (const ReservedPoint& p : curve.reserved) {
    reserved.push_back(p.at);
    reserved.push_back(p.bytes);
  }
  return {{"groups", groups.json()},           {"group", std::move(group)},       {"bytes", std::move(bytes)}, {"label", std::move(label)},
          {"marks", marks_json(curve, steps)}, {"reserved", std::move(reserved)}, {"peak_at", curve.peak},     {"peak_bytes", most}};
}

Json segments_of(const MemoryCurve& curve, const Trace& trace, const Groups& groups, Labels& labels) {
  if (curve.segments.empty()) return nullptr;
  std::map<StorageId, Category> category;
  for (size_t i = 0; i < curve.peak; ++i) category[curve.changes[i].storage] = curve.changes[i].category;
  int64_t reserved = 0, used = 0, largest = 0, holes = 0;
  Json list = Json::array();
  for (const PlacedSegment& s : curve.segments) {
    Json blocks = Json::array();  // size, group or -1, label
    bool any = false;
    for (const PlacedBlock& b : s.blocks) any |= b.used;
    for (const PlacedBlock& b : s.blocks) {
      blocks.push_back(b.size);
      blocks.push_back(b.used ? groups.of(b.storage, category[b.storage]) : -1);
      blocks.push_back(b.used ? labels.of(b.storage) : -1);
      used += b.used ? b.size : 0;
      if (!b.used) largest = std::max(largest, b.size);
      if (!b.used && any) holes += b.size;
    }
    reserved += s.size;
    list.push_back({{"size", s.size}, {"small", s.small}, {"blocks", std::move(blocks)}});
  }
  return {{"count", curve.segments.size()}, {"reserved_bytes", reserved},    {"used_bytes", used},
          {"free_bytes", reserved - used},  {"largest_free_bytes", largest}, {"free_in_used_segments_bytes", holes},
          {"list", std::move(list)}};
}

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

// Amounts have no tensors: one row for each colour.
Json levels_tree(const Json& page, const Trace& trace, const std::vector<LiveStorage>& alive) {
  std::map<std::string, int64_t> bytes;
  int64_t all = 0;
  for (const LiveStorage& l : alive) {
    const std::string theirs = pytorch_category(l.category);
    bytes[theirs.empty() ? "Unknown" : theirs] += trace.storages[l.id].bytes;
    all += trace.storages[l.id].bytes;
  }
  Json children = Json::array();
  for (const auto& [name, n] : bytes) children.push_back({{"name", name}, {"bytes", n}});
  std::stable_sort(children.begin(), children.end(), [](const Json& a, const Json& b) { return a["bytes"] > b["bytes"]; });
  return {{"name", page["title"]}, {"bytes", all}, {"children", children}};
}

void add_pictures(Json& page, const Trace& trace, const MemoryCurve& curve, RunPage::Colours colours,
                  const std::vector<std::string>& steps) {
  const Groups groups(trace, curve, colours);
  Labels labels(trace, colours == RunPage::Colours::places);
  page["timeline"] = timeline_of(curve, groups, labels, steps);
  page["segments"] = segments_of(curve, trace, groups, labels);
  page["timeline"]["labels"] = labels.json();
}

Json number_json(const char* name, const ByteRange& r, const char* meaning) {
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

void replace(std::string& text, std::string_view what, std::string_view with) {
  const size_t at = text.find(what);
  if (at != std::string::npos) text.replace(at, what.size(), with);
}

}  // namespace

Json page_json(const JobPage& p) {
  const Explanation& x = p.explanation;
  const Estimate& e = x.estimate;
  const Timeline timeline = ideal_timeline(p.trace);
  const int64_t at = timeline.steps.at(std::min(e.worst, timeline.steps.size() - 1)).at_event;
  Json page{{"schema", kReportSchema},
            {"command", "report"},
            {"kind", "job"},
            {"title", e.job.model},
            {"subtitle", recipe_text(e.job, e.sample, with_commas(e.parameters))},
            {"verdict", verdict_json(p)},
            {"capacity", x.fits.empty() || !x.fits[0].device.capacity ? Json(nullptr) : Json(x.fits[0].device.capacity->bytes.count)},
            {"numbers", Json::array()}};
  if (e.memory) {
    page["numbers"].push_back(number_json("allocated", e.memory->allocated, "torch.cuda.max_memory_allocated(): blocks of tensors"));
    page["numbers"].push_back(number_json("reserved", e.memory->reserved, "torch.cuda.max_memory_reserved(): segments of the allocator"));
    page["numbers"].push_back(number_json("device", e.memory->device, "nvidia-smi: reserved, and what lies outside the allocator"));
  }
  page["estimate"] = estimate_json(e);
  add_pictures(page, p.trace, memory_curve(p.trace, at, parse_alloc_conf(e.job.alloc_conf), !e.xla), RunPage::Colours::categories,
               step_names_of(e));
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
  Json page{{"schema", kReportSchema}, {"command", "report"},
            {"kind", p.kind},          {"title", p.title},
            {"subtitle", p.subtitle},  {"verdict", {{"state", p.state}, {"sentence", p.sentence}, {"detail", ""}}},
            {"capacity", nullptr},     {"numbers", Json::array()}};
  for (const auto& [name, bytes] : p.numbers)
    page["numbers"].push_back({{"name", name}, {"bytes", bytes}, {"low_bytes", bytes}, {"high_bytes", bytes}, {"meaning", ""}});
  page["estimate"] = nullptr;
  add_pictures(page, p.trace, p.curve, p.colours, {});
  using Colours = RunPage::Colours;
  page["tree"] = p.colours == Colours::pytorch  ? levels_tree(page, p.trace, p.alive)
                 : p.colours == Colours::places ? tree_of(module_tree(p.trace, p.alive, p.title))
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
  std::string title;
  for (const char c : page["title"].get<std::string>())
    title += c == '<' || c == '&' || c == '{' ? fmt::format("&#{};", int{c}) : std::string(1, c);
  std::string out(web_report_html());
  replace(out, "{{css}}", web_report_css());
  replace(out, "{{js}}", web_report_js());
  replace(out, "{{title}}", title);
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
