#include "systems/seed_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "model/weights_only.h"
#include "report/captured_report.h"
#include "report/estimate_report.h"
#include "report/job_report.h"
#include "systems/source_locations.h"
#include "util/checked.h"
#include "util/text.h"

namespace plimsoll {

namespace {

using doc::Kind;

constexpr size_t kTensorsOfSection = 8, kBottlenecks = 8;

doc::Text to_the_byte(Bytes b) { return doc::Text(b) + " (" + doc::Count{b.count} + " B)"; }

// One configuration of the comparison, asked about the device.
ComparedConfiguration configuration(Runs& runs, std::string name, const Job& job, const std::optional<TargetDevice>& device) {
  ComparedConfiguration c{std::move(name), job, estimate(runs, job, 0, device ? std::optional(device->spec) : std::nullopt), {}};
  if (device) c.fit = Fitting(runs, job).replay_on(*device);
  return c;
}

// The same job in smaller batches, and with checkpointing where the model has it; where nothing is smaller, in larger batches.
std::vector<std::pair<std::string, Job>> relatives(const Job& job) {
  std::vector<std::pair<std::string, Job>> out;
  const auto with_batch = [&](int64_t batch, bool checkpointing) {
    Job j = job;
    j.batch = batch;
    follow_training(j, job);
    if (checkpointing) j.checkpointing.on = true;
    out.emplace_back(fmt::format("batch {}{}", batch, checkpointing ? ", checkpointing" : ""), j);
  };
  for (const int64_t divisor : {2, 4})
    if (job.batch / divisor >= 1) with_batch(job.batch / divisor, false);
  if (!job.checkpointing.on && job.program.framework == Framework::pytorch) {
    with_batch(job.batch, true);
    if (job.batch > 1) with_batch(1, true);
  }
  if (out.empty())
    for (const int64_t factor : {2, 4}) with_batch(checked_mul(job.batch, factor), false);
  return out;
}

class SeedWriter {
 public:
  explicit SeedWriter(const SeedReport& report) : r_(report), e_(report.estimate) {}

  doc::Document write() {
    settings();
    heading("Memory breakdown");
    parameters();
    for (const auto& [category, title] : kSections) section(category, title);
    total();
    bottlenecks();
    recommendations();
    comparison();
    findings();
    heading("How sure");
    say(e_.job.captured ? captured_certainty(e_.job)
        : e_.job.family == kWeightsOnly
            ? "The architecture is not known: what follows from its weights is exact, activations are those of a stand-in, and their "
              "interval is wide."
        : e_.xla
            ? "The step was compiled as XLA does: arguments, outputs and aliases are exact, temporaries are modelled and have an interval."
            : "The step was executed op by op under PyTorch's memory rules, which are checked against recorded runs to the byte; intervals "
              "hold what no simulation knows (contexts, workspaces, fragmentation).");
    return {"", recipe_text(e_.job, e_.sample) + (e_.job.trainer.empty() ? "" : fmt::format(" ({})", e_.job.trainer)), std::move(blocks_)};
  }

 private:
  static constexpr std::pair<Category, const char*> kSections[]{{Category::gradient, "Gradients"},
                                                                {Category::optimizer_state, "Optimizer states"},
                                                                {Category::ema, "Moving average (EMA)"},
                                                                {Category::buffer, "Buffers"},
                                                                {Category::input, "Input tensors"},
                                                                {Category::activation, "Activations of the forward pass"},
                                                                {Category::backward, "Temporaries of the backward pass"},
                                                                {Category::optimizer, "Temporaries of the optimizer"},
                                                                {Category::ddp_bucket, "Gradient buckets of DDP"},
                                                                {Category::workspace, "Workspaces of kernels"}};

  void add(doc::Block block) { blocks_.push_back(std::move(block)); }
  void say(const doc::Text& text) { add(doc::Paragraph{text}); }
  void heading(const char* title) { add(doc::Heading{title}); }
  void subheading(const char* title) { add(doc::Heading{fmt::format("{}. ", ++number_) + doc::Text(title), {}, 2}); }

  void settings() {
    heading("Settings");
    doc::Table table{{{"setting"}, {"value"}, {"comes from"}}};
    const auto row = [&](const std::string& key, const nlohmann::ordered_json& value, const std::string& origin) {
      table.rows.push_back(
          {{doc::code(key), doc::code(printable(value.is_string() ? value.get<std::string>() : dump(value), 80)), origin}});
    };
    const nlohmann::ordered_json values = job_json(e_.job);
    for (const auto& [key, value] : values.items()) {
      const auto origin = e_.job.origin.find(key);
      if (key == "origin" || key == "config" || (key == "seq" && e_.job.inputs == InputKind::own && !e_.sample.empty()) ||
          (origin == e_.job.origin.end() && key != "batch" && key != "seq" && key != "precision"))
        continue;
      row(key, value, origin == e_.job.origin.end() ? "default" : origin->second);
    }
    for (const auto& [key, value] : e_.job.config.values().items()) {
      const auto origin = e_.job.origin.find("config." + key);
      row(key, value, origin == e_.job.origin.end() ? e_.job.config.source() : origin->second);
    }
    add(std::move(table));
  }

  // Parameters by part: the first levels of the module tree that have more than one branch.
  void parameters() {
    subheading("Model parameters");
    doc::Table table{{{"part"}, {"parameters", Kind::number}, {"size", Kind::size}}};
    const std::map<std::string, int64_t> parts = parameters_by_part(e_, 2);
    const std::map<std::string, Bytes> sizes = sizes_of(parts);
    for (const auto& [part, elements] : parts) table.rows.push_back({{doc::code(part), doc::Count{elements}, sizes.at(part)}});
    table.rows.push_back({{"total", doc::Count{e_.parameters}, to_the_byte(share_of(Category::parameter))}, {}, true});
    add(std::move(table));
    if (e_.trainable != e_.parameters) say(doc::Text("trained") + ": " + doc::Count{e_.trainable} + " / " + doc::Count{e_.parameters});
  }

  // By the tree of what is alive at the peak. Numbers of a list are one there, and share by their elements; so do, of the rest, parts that
  // the tree does not have.
  std::map<std::string, Bytes> sizes_of(const std::map<std::string, int64_t>& parts) const {
    std::map<std::string, int64_t> alike;
    std::map<std::string, Bytes> sizes;
    Bytes rest = share_of(Category::parameter);
    int64_t unplaced = 0;
    const auto share = [](Bytes bytes, int64_t part, int64_t whole) {
      return Bytes{static_cast<int64_t>(static_cast<double>(bytes.count) * static_cast<double>(part) /
                                        static_cast<double>(std::max<int64_t>(1, whole)))};
    };
    for (const auto& [part, elements] : parts) alike[folded(part)] += elements;
    for (const auto& [part, elements] : parts) {
      const auto after = parts.upper_bound(part + ".");
      const bool has_parts = after != parts.end() && after->first.starts_with(part + ".");
      const Bytes bytes = share(parameters_within(folded(part), has_parts), elements, alike[folded(part)]);
      sizes[part] = bytes;
      rest.count -= bytes.count;
      if (bytes.count == 0) unplaced += elements;
    }
    for (const auto& [part, elements] : parts)
      if (sizes[part].count == 0) sizes[part] = share(std::max(rest, Bytes{}), elements, unplaced);
    return sizes;
  }

  static std::string folded(const std::string& part) {
    std::string out;
    for (const std::string& name : split_at(part, '.')) {
      const bool number = !name.empty() && name.find_first_not_of("0123456789") == std::string::npos;
      out += (out.empty() ? "" : ".") + (number ? "*" : name);
    }
    return out;
  }

  Bytes parameters_within(const std::string& part, bool itself) const {
    for (const TreeNode& n : e_.by_category.children)
      if (n.name == category_name(Category::parameter)) return bytes_within(n, part, itself);
    return {};
  }

  // `itself`: without its modules. Nothing where the tree has no such part.
  static Bytes bytes_within(const TreeNode& node, const std::string& part, bool itself) {
    for (const TreeNode& child : node.children) {
      if (child.name == part && itself) return bytes_within(child, "[self]", false);
      if (child.name == part || child.name == part + ".*") return child.bytes;
      if (part.starts_with(child.name + ".")) return bytes_within(child, part.substr(child.name.size() + 1), itself);
    }
    return {};
  }

  Bytes share_of(Category c) const {
    for (const TreeNode& n : e_.by_category.children)
      if (n.name == category_name(c)) return n.bytes;
    return {};
  }

  void section(Category category, const char* title) {
    const Bytes at_peak = share_of(category), most = e_.category_peaks[static_cast<size_t>(category)];
    if (at_peak.count == 0 && most.count == 0) return;
    subheading(title);
    say(doc::Text("at the peak") + ": " + doc::bold(to_the_byte(at_peak)) + "; " + "at most in the step" + ": " + to_the_byte(most));
    doc::Table table{{{"tensor"}, {"shape"}, {"size", Kind::size}, {"count", Kind::number}, {"total", Kind::size}, {"source"}}};
    for (const LiveTensor& t : e_.top) {
      if (t.category != category) continue;
      const bool outside = t.module.starts_with('[');  // inputs, the loss: no module's
      const SourceLocation* at = category == Category::workspace ? nullptr : source_of(e_.job.family, outside ? "" : t.module, t.op);
      table.rows.push_back({{doc::code(t.module) + (" " + t.op), doc::code(t.shape), t.bytes, doc::Count{t.count},
                             Bytes{t.bytes.count * t.count}, at ? doc::code(at->where) + " " + at->what : doc::Text()}});
      if (table.rows.size() == kTensorsOfSection) break;
    }
    if (!table.rows.empty()) add(std::move(table));
  }

  void total() {
    heading("Total");
    doc::Text place = doc::Text("it is reached in") + " " + (e_.steps[e_.worst].name + ", ") + phase_name(e_.peak_phase);
    if (!e_.peak_module.empty()) place += ", " + doc::code(e_.peak_module);
    if (!e_.peak_op.empty()) place += " (" + e_.peak_op + ")";
    say(place + ".");
    say("The peak is the sum of what is alive at one moment:");
    std::vector<doc::Text> terms;
    for (const TreeNode& n : e_.by_category.children) terms.push_back(doc::Text(n.name) + " " + n.bytes);
    say(doc::joined(terms, " + ") + " = " + to_the_byte(e_.peak));
    numbers();
    doc::Table table{{{"step"}, {"peak", Kind::size}, {"forward", Kind::size}, {"backward", Kind::size}, {"optimizer", Kind::size}}};
    for (const StepEstimate& s : e_.steps) {
      const auto phase = [&](Phase p) {
        const int64_t bytes = s.by_phase[static_cast<size_t>(p)];
        return bytes ? doc::Text(Bytes{bytes}) : doc::Text();
      };
      table.rows.push_back({{s.name, s.peak, phase(Phase::forward), phase(Phase::backward), phase(Phase::optimizer)}});
    }
    add(std::move(table));
  }

  void numbers() {
    doc::Table table{{{"number"}, {"expected", Kind::size}, {"interval"}, {"meaning"}}};
    table.rows.push_back({{"tensors", to_the_byte(e_.peak), "", "tensors alive at the peak"}});
    if (e_.memory) {
      const auto range = [&](const char* name, const ByteRange& b, const char* meaning) {
        table.rows.push_back({{name, b.bytes, doc::Text(b.low) + " - " + b.high, meaning}});
      };
      if (!e_.xla) {
        range("allocated", e_.memory->allocated, "what torch.cuda.max_memory_allocated() will say");
        range("reserved", e_.memory->reserved, "what torch.cuda.max_memory_reserved() will say");
      }
      range("device", e_.memory->device, e_.xla ? "what the device must hold" : "what nvidia-smi will show for the process");
    }
    add(std::move(table));
  }

  // What is alive at the peak, by category and part of the model.
  void bottlenecks() {
    heading("Bottlenecks, ranked");
    struct Item {
      Bytes bytes;
      std::string largest;  // its largest tensors
      Bytes largest_bytes;
    };
    std::map<std::pair<Category, std::string>, Item> items;
    for (const LiveTensor& t : e_.top) {
      const std::vector<std::string> names = split_at(t.module, '.');
      std::string part;
      for (size_t i = 0; i < names.size() && i < 4; ++i) part += (i ? "." : "") + names[i];
      Item& item = items[{t.category, part}];
      const Bytes all{t.bytes.count * t.count};
      item.bytes += all;
      if (all > item.largest_bytes) {
        item.largest_bytes = all;
        item.largest = fmt::format("{}{}{}", t.count > 1 ? fmt::format("{} x ", t.count) : "", t.op, t.shape.empty() ? "" : " " + t.shape);
      }
    }
    std::vector<std::pair<std::pair<Category, std::string>, Item>> ranked(items.begin(), items.end());
    std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.second.bytes > b.second.bytes; });
    doc::List list{{}, true};
    for (size_t i = 0; i < ranked.size() && i < kBottlenecks; ++i)
      list.items.push_back(doc::bold(category_name(ranked[i].first.first)) + ", " + doc::code(ranked[i].first.second) + ": " +
                           ranked[i].second.bytes + " (" + doc::Share{ranked[i].second.bytes, e_.peak} +
                           ("); " + ranked[i].second.largest));
    add(std::move(list));
  }

  void recommendations() {
    if (!r_.what_if) return;
    heading("Recommendations");
    say("Each was simulated for this very run; savings are of device memory.");
    doc::Table table{{{"change"}, {"saves", Kind::size}, {"then", Kind::size}}};
    if (r_.device) table.columns.push_back({"Fits in"});
    table.columns.push_back({"cost"});
    std::map<LeverOutcome, std::vector<doc::Text>> rest;
    for (const LeverEffect& l : r_.what_if->effects) {
      if (l.outcome != LeverOutcome::saves) {
        rest[l.outcome].emplace_back(l.lever.name);
        continue;
      }
      doc::Row row{{l.lever.name, l.saving + (" (" + doc::Text(doc::Share{l.saving, r_.what_if->device}) + ")"), l.device},
                   {doc::code(l.lever.settings.flags())}};
      if (r_.device) row.cells.emplace_back(verdict(l.verdict));
      row.cells.emplace_back(l.lever.cost);
      table.rows.push_back(std::move(row));
    }
    add(std::move(table));
    doc::List list;
    const std::pair<LeverOutcome, const char*> kRest[]{{LeverOutcome::nothing, "Does nothing here:"},
                                                       {LeverOutcome::costs_memory, "Takes more memory:"},
                                                       {LeverOutcome::impossible, "Not possible:"}};
    for (const auto& [outcome, title] : kRest)
      if (!rest[outcome].empty()) list.items.push_back(doc::Text(title) + " " + doc::joined(rest[outcome], "; "));
    const std::vector<doc::Text> left_out(r_.what_if->left_out.begin(), r_.what_if->left_out.end());
    if (!left_out.empty()) list.items.push_back(doc::Text("Left out") + " (" + kOnePool + "): " + doc::joined(left_out, "; "));
    if (!list.items.empty()) add(std::move(list));
  }

  static const char* verdict(Verdict v) {
    switch (v) {
      case Verdict::fits: return "yes";
      case Verdict::tight: return "maybe";
      case Verdict::does_not_fit: return "no";
      case Verdict::unknown: break;
    }
    return "unknown";
  }

  void comparison() {
    if (r_.comparison.size() < 2) return;
    heading("Comparison");
    doc::Table table{{{"configuration"}, {"peak", Kind::size}, {"device memory", Kind::size}, {"change", Kind::number}}};
    if (r_.device) table.columns.push_back({"Fits in"});
    const auto memory_of = [](const ComparedConfiguration& c) {
      return c.estimate.memory ? c.estimate.memory->device.bytes : c.estimate.peak;
    };
    const double first = static_cast<double>(memory_of(r_.comparison[0]).count);
    for (const ComparedConfiguration& c : r_.comparison) {
      const double change = first > 0 ? 100.0 * (static_cast<double>(memory_of(c).count) - first) / first : 0;
      doc::Row row{{c.name, c.estimate.peak, memory_of(c), fmt::format("{:+.0f} %", change)}};
      if (c.fit) row.cells.push_back(doc::Text(verdict(c.fit->verdict)) + " (" + r_.device->name + ")");
      table.rows.push_back(std::move(row));
    }
    add(std::move(table));
  }

  void findings() {
    heading("Declared and effective");
    if (e_.job.findings.empty()) return say("Every setting does what it says.");
    doc::List list;
    for (const Finding& f : e_.job.findings)
      list.items.push_back(doc::bold(to_string(f.effect)) + " " + (f.setting.empty() ? doc::Text(f.source) : doc::code(f.setting)) + ": " +
                           f.what + (f.why.empty() ? "" : " (" + f.why + ")"));
    add(std::move(list));
  }

  const SeedReport& r_;
  const Estimate& e_;
  doc::Blocks blocks_;
  int number_ = 0;
};

}  // namespace

SeedReport make_seed_report(const Job& job, const std::optional<TargetDevice>& device,
                            const std::vector<std::pair<std::string, Job>>& others) {
  SeedReport r;
  r.device = device;
  Runs runs;
  r.estimate = estimate(runs, job, SIZE_MAX, device ? std::optional(device->spec) : std::nullopt);
  if (job.program.framework == Framework::pytorch) r.what_if = what_if(runs, job, device);
  r.comparison.push_back(configuration(runs, "as it is", job, device));
  for (const auto& [name, other] : others.empty() ? relatives(job) : others) {
    const auto compare = [&, &name = name, &other = other] { r.comparison.push_back(configuration(runs, name, other, device)); };
    if (others.empty())
      problem_in(compare);  // a configuration that we made up may be impossible: a model without checkpointing, ...
    else
      compare();
  }
  return r;
}

doc::Document seed_report_document(const SeedReport& report, Language language) {
  const Phrases say(language);
  doc::Document out = SeedWriter(report).write();
  doc::for_each_phrase(out, [&](std::string& phrase) { phrase = say(phrase); });
  out.title = say("Memory of") + " " + report.estimate.job.model;
  return out;
}

}  // namespace plimsoll
