#include "systems/seed_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "model/weights_only.h"
#include "report/estimate_report.h"
#include "report/job_report.h"
#include "systems/source_locations.h"
#include "util/checked.h"
#include "util/text.h"

namespace plimsoll {

namespace {

constexpr size_t kTensorsOfSection = 8, kBottlenecks = 8;

std::string code(const std::string& text) { return "`" + text + "`"; }

std::string gigabytes(Bytes b) { return fmt::format("{} ({} B)", to_string(b), with_commas(b.count)); }

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
  SeedWriter(const SeedReport& report, Language language) : r_(report), e_(report.estimate), say_(language) {}

  std::string write() {
    line(fmt::format("# {} {}", say_("Memory of"), e_.job.model));
    line("");
    line(recipe_text(e_.job, e_.sample) + (e_.job.trainer.empty() ? "" : fmt::format(" ({})", e_.job.trainer)));
    settings();
    heading(say_("Memory breakdown"));
    parameters();
    for (const auto& [category, title] : kSections) section(category, title);
    total();
    bottlenecks();
    recommendations();
    comparison();
    findings();
    heading(say_("How sure"));
    line(say_(
        e_.job.family == kWeightsOnly
            ? "The architecture is not known: what follows from its weights is exact, activations are those of a stand-in, and their "
              "interval is wide."
        : e_.xla
            ? "The step was compiled as XLA does: arguments, outputs and aliases are exact, temporaries are modelled and have an interval."
            : "The step was executed op by op under PyTorch's memory rules, which are checked against recorded runs to the byte; intervals "
              "hold what no simulation knows (contexts, workspaces, fragmentation)."));
    return out_;
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

  void line(const std::string& text) { out_ += text + "\n"; }
  void heading(const std::string& text) { out_ += "\n## " + text + "\n\n"; }
  void subheading(const std::string& text) { out_ += fmt::format("\n### {}. {}\n\n", ++number_, text); }
  void columns(const std::vector<std::string>& names) {
    std::string head = "|", rule = "|";
    for (const std::string& name : names) {
      head += " " + say_(name) + " |";
      rule += "---|";
    }
    line(head);
    line(rule);
  }
  void row(const std::vector<std::string>& cells) {
    std::string text = "|";
    for (std::string cell : cells) {
      for (size_t at = 0; (at = cell.find('|', at)) != std::string::npos; at += 2) cell.replace(at, 1, "\\|");
      text += " " + cell + " |";
    }
    line(text);
  }

  void settings() {
    heading(say_("Settings"));
    columns({"setting", "value", "comes from"});
    const nlohmann::ordered_json values = job_json(e_.job);
    for (const auto& [key, value] : values.items()) {
      const auto origin = e_.job.origin.find(key);
      if (key == "origin" || key == "config" || (key == "seq" && e_.job.inputs == InputKind::own && !e_.sample.empty()) ||
          (origin == e_.job.origin.end() && key != "batch" && key != "seq" && key != "precision"))
        continue;
      row({code(key), printable(value.is_string() ? value.get<std::string>() : dump(value), 80),
           origin == e_.job.origin.end() ? say_("default") : origin->second});
    }
    for (const auto& [key, value] : e_.job.config.values().items()) {
      const auto origin = e_.job.origin.find("config." + key);
      row({code(key), printable(value.is_string() ? value.get<std::string>() : dump(value), 80),
           origin == e_.job.origin.end() ? e_.job.config.source() : origin->second});
    }
  }

  // Parameters by part: the first levels of the module tree that have more than one branch.
  void parameters() {
    subheading(say_("Model parameters"));
    columns({"part", "parameters", "size"});
    const std::map<std::string, int64_t> parts = parameters_by_part(e_, 2);
    const std::map<std::string, Bytes> sizes = sizes_of(parts);
    for (const auto& [part, elements] : parts) row({code(part), with_commas(elements), to_string(sizes.at(part))});
    row({"**" + say_("total") + "**", "**" + with_commas(e_.parameters) + "**", "**" + gigabytes(share_of(Category::parameter)) + "**"});
    if (e_.trainable != e_.parameters)
      line(fmt::format("\n{}: {} / {}", say_("trained"), with_commas(e_.trainable), with_commas(e_.parameters)));
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
    subheading(say_(title));
    line(fmt::format("{}: **{}**; {}: {}", say_("at the peak"), gigabytes(at_peak), say_("at most in the step"), gigabytes(most)));
    size_t shown = 0;
    for (const LiveTensor& t : e_.top) {
      if (t.category != category) continue;
      if (shown == 0) {
        line("");
        columns({"tensor", "shape", "size", "count", "total", "source"});
      }
      const bool outside = t.module.starts_with('[');  // inputs, the loss: no module's
      const SourceLocation* at = category == Category::workspace ? nullptr : source_of(e_.job.family, outside ? "" : t.module, t.op);
      row({code(t.module) + " " + t.op, t.shape.empty() ? "" : code(t.shape), to_string(t.bytes), std::to_string(t.count),
           to_string(Bytes{t.bytes.count * t.count}), at ? fmt::format("`{}` {}", at->where, at->what) : ""});
      if (++shown == kTensorsOfSection) break;
    }
  }

  void total() {
    heading(say_("Total"));
    line(fmt::format("{} {}{}{}.", say_("it is reached in"), e_.steps[e_.worst].name + ", " + say_(phase_name(e_.peak_phase)),
                     e_.peak_module.empty() ? "" : ", " + code(e_.peak_module), e_.peak_op.empty() ? "" : " (" + e_.peak_op + ")"));
    line(say_("The peak is the sum of what is alive at one moment:"));
    line("");
    std::vector<std::string> terms;
    for (const TreeNode& n : e_.by_category.children) terms.push_back(fmt::format("{} {}", say_(n.name), to_string(n.bytes)));
    line("    " + join(terms, " + ") + " = " + gigabytes(e_.peak));
    line("");
    columns({"number", "expected", "interval", "meaning"});
    row({"tensors", gigabytes(e_.peak), "", say_("tensors alive at the peak")});
    if (e_.memory) {
      const auto range = [&](const char* name, const ByteRange& b, const char* meaning) {
        row({name, to_string(b.bytes), fmt::format("{} - {}", to_string(b.low), to_string(b.high)), say_(meaning)});
      };
      if (!e_.xla) {
        range("allocated", e_.memory->allocated, "what torch.cuda.max_memory_allocated() will say");
        range("reserved", e_.memory->reserved, "what torch.cuda.max_memory_reserved() will say");
      }
      range("device", e_.memory->device, e_.xla ? "what the device must hold" : "what nvidia-smi will show for the process");
    }
    line("");
    columns({"step", "peak", "forward", "backward", "optimizer"});
    for (const StepEstimate& s : e_.steps) {
      const auto phase = [&](Phase p) {
        return s.by_phase[static_cast<size_t>(p)] ? to_string(Bytes{s.by_phase[static_cast<size_t>(p)]}) : "";
      };
      row({s.name, to_string(s.peak), phase(Phase::forward), phase(Phase::backward), phase(Phase::optimizer)});
    }
  }

  // What is alive at the peak, by category and part of the model.
  void bottlenecks() {
    heading(say_("Bottlenecks, ranked"));
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
        item.largest = fmt::format("{} {}{}", t.count > 1 ? fmt::format("{} x", t.count) : "", t.op, t.shape.empty() ? "" : " " + t.shape);
      }
    }
    std::vector<std::pair<std::pair<Category, std::string>, Item>> ranked(items.begin(), items.end());
    std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.second.bytes > b.second.bytes; });
    for (size_t i = 0; i < ranked.size() && i < kBottlenecks; ++i)
      line(fmt::format("{}. **{}**, {}: {} ({}); {}", i + 1, say_(category_name(ranked[i].first.first)), code(ranked[i].first.second),
                       to_string(ranked[i].second.bytes), percent_of(ranked[i].second.bytes, e_.peak), ranked[i].second.largest));
  }

  void recommendations() {
    if (!r_.what_if) return;
    heading(say_("Recommendations"));
    line(say_("Each was simulated for this very run; savings are of device memory."));
    line("");
    std::vector<std::string> head{"change", "saves", "then"};
    if (r_.device) head.push_back("Fits in");
    head.push_back("cost");
    columns(head);
    std::map<LeverOutcome, std::vector<std::string>> rest;
    for (const LeverEffect& l : r_.what_if->effects) {
      if (l.outcome != LeverOutcome::saves) {
        rest[l.outcome].push_back(say_(l.lever.name));
        continue;
      }
      std::vector<std::string> cells{fmt::format("{}<br>`{}`", say_(l.lever.name), l.lever.settings.flags()),
                                     fmt::format("{} ({})", to_string(l.saving), percent_of(l.saving, r_.what_if->device)),
                                     to_string(l.device)};
      if (r_.device) cells.push_back(verdict(l.verdict));
      cells.push_back(say_(l.lever.cost));
      row(cells);
    }
    line("");
    const std::pair<LeverOutcome, const char*> kRest[]{{LeverOutcome::nothing, "Does nothing here:"},
                                                       {LeverOutcome::costs_memory, "Takes more memory:"},
                                                       {LeverOutcome::impossible, "Not possible:"}};
    for (const auto& [outcome, title] : kRest)
      if (!rest[outcome].empty()) line(fmt::format("- {} {}", say_(title), join(rest[outcome], "; ")));
    std::vector<std::string> left_out;
    for (const std::string& name : r_.what_if->left_out) left_out.push_back(say_(name));
    if (!left_out.empty()) line(fmt::format("- {} ({}): {}", say_("Left out"), say_(kOnePool), join(left_out, "; ")));
  }

  std::string verdict(Verdict v) const {
    switch (v) {
      case Verdict::fits: return say_("yes");
      case Verdict::tight: return say_("maybe");
      case Verdict::does_not_fit: return say_("no");
      case Verdict::unknown: break;
    }
    return say_("unknown");
  }

  void comparison() {
    if (r_.comparison.size() < 2) return;
    heading(say_("Comparison"));
    std::vector<std::string> head{"configuration", "peak", "device memory", "change"};
    if (r_.device) head.push_back("Fits in");
    columns(head);
    const auto memory_of = [](const ComparedConfiguration& c) {
      return c.estimate.memory ? c.estimate.memory->device.bytes : c.estimate.peak;
    };
    const double first = static_cast<double>(memory_of(r_.comparison[0]).count);
    for (const ComparedConfiguration& c : r_.comparison) {
      const double change = first > 0 ? 100.0 * (static_cast<double>(memory_of(c).count) - first) / first : 0;
      std::vector<std::string> cells{say_(c.name), to_string(c.estimate.peak), to_string(memory_of(c)), fmt::format("{:+.0f} %", change)};
      if (c.fit) cells.push_back(fmt::format("{} ({})", verdict(c.fit->verdict), r_.device->name));
      row(cells);
    }
  }

  void findings() {
    heading(say_("Declared and effective"));
    if (e_.job.findings.empty()) return line(say_("Nothing was found that does not do what it says."));
    for (const Finding& f : e_.job.findings)
      line(fmt::format("- **{}** {}: {}{}", say_(to_string(f.effect)), f.setting.empty() ? f.source : code(f.setting), f.what,
                       f.why.empty() ? "" : " (" + f.why + ")"));
  }

  const SeedReport& r_;
  const Estimate& e_;
  Phrases say_;
  std::string out_;
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

std::string seed_report_markdown(const SeedReport& report, Language language) { return SeedWriter(report, language).write(); }

}  // namespace plimsoll
