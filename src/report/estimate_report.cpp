#include "report/estimate_report.h"
#include "job/distribution.h"
#include "report/job_report.h"
#include "report/schema_versions.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "model/weights_only.h"
#include "program/ranks.h"
#include "report/fit_report.h"
#include "report/host_report.h"
#include "report/job_report.h"
#include "report/xla_report.h"
#include "util/text.h"

namespace plimsoll {

namespace {

constexpr int kNameWidth = 44, kBarWidth = 24;

std::string count_text(int64_t n) {
  if (n >= 1'000'000'000) return fmt::format("{:.2f} B", static_cast<double>(n) / 1e9);
  if (n >= 1'000'000) return fmt::format("{:.1f} M", static_cast<double>(n) / 1e6);
  return with_commas(n);
}

class Writer {
 public:
  Writer(const Estimate& e, const Style& style, const TextOptions& options) : e_(e), style_(style), options_(options) {}

  std::string write() {
    line(style_.bold(e_.job.model) +
         fmt::format("  {} parameters{}{}, {}", count_text(e_.parameters), shared_text(), trained_text(), recipe_text(e_.job, e_.sample)));
    line("");
    e_.xla ? program() : peaks();
    curve();
    line("");
    line(style_.bold("What is alive at the peak"));
    for (const TreeNode& c : e_.by_category.children) row(c.name, c.bytes, 1);
    row("total", e_.peak, 1);
    line("");
    line(style_.bold("Where it is"));
    tree(e_.by_module, 0);
    line("");
    line(style_.bold("Largest tensors at the peak"));
    for (const LiveTensor& t : e_.top)
      line(fmt::format("  {:>11} {} {:<20} {} ({}){}", to_string(t.bytes), t.count > 1 ? fmt::format("x {:<4}", t.count) : "      ",
                       category_name(t.category), t.module, t.op, t.shape.empty() ? "" : "  " + style_.dim(t.shape)));
    line("");
    if (e_.xla) {
      out_ += xla_certainty(style_);
      return out_;
    }
    if (e_.job.compile)
      line(style_.dim(
          e_.job.checkpointing.on
              ? "torch.compile: as the eager run; its kernels need less in between, which is not modelled where blocks are checkpointed."
              : "torch.compile: the figures are midway between the eager run, whose tensors are shown, and one that keeps only matrix "
                "products; the intervals hold both."));
    how_sure();
    return out_;
  }

 private:
  void how_sure() {
    if (e_.job.family == kWeightsOnly) {
      const bool weights = e_.job.config.find({"weights"}) != nullptr;
      line(style_.dim(
          weights ? "How sure: the architecture is not known. Parameters, gradients and optimizer are those of its weights, to the byte;"
                  : fmt::format("How sure: the architecture is not known. A plain decoder of the same sizes was executed in its place; the "
                                "intervals allow {} to {} times its parameters,",
                                kStandInParameters.low, kStandInParameters.high)));
      line(style_.dim(fmt::format("{} {} to {} times as large.",
                                  weights
                                      ? "activations are a stand-in, every layer called once on all tokens, which the intervals take to be"
                                      : "and activations that are",
                                  kStandInActivations.low, kStandInActivations.high)));
      return;
    }
    line(style_.dim(
        "How sure: the step was executed op by op under PyTorch's memory rules, which `plimsoll score` checks against recorded runs to"));
    line(
        style_.dim("the byte, and placed by its caching allocator. The intervals hold nine of ten GPU runs that are well described "
                   "(docs/accuracy.md)."));
  }

  const char* shared_text() const { return shards_parameters(e_.job) ? " on this rank" : ""; }
  std::string trained_text() const { return e_.trainable == e_.parameters ? "" : fmt::format(" ({} trained)", count_text(e_.trainable)); }

  void line(const std::string& text) { out_ += text + "\n"; }

  void peaks() {
    const std::string where = fmt::format("{}{}{}", phase_name(e_.peak_phase), e_.peak_module.empty() ? "" : ", " + e_.peak_module,
                                          e_.peak_op.empty() ? "" : ", " + e_.peak_op);
    line(fmt::format("  tensors         {}   {} bytes alive at the peak", style_.bold(fmt::format("{:>11}", to_string(e_.peak))),
                     with_commas(e_.peak.count)));
    if (e_.memory) {
      counter("allocated", e_.memory->allocated, "torch.cuda.max_memory_allocated(): their blocks");
      counter("reserved", e_.memory->reserved, "torch.cuda.max_memory_reserved(): the allocator's segments");
      pools();
      counter("device", e_.memory->device,
              "nvidia-smi: reserved, and on " + (e_.device.empty() ? "some NVIDIA card (--gpu for yours)" : e_.device) + ":");
      out_ += overheads_text(e_.memory->overheads, style_);
      if (e_.memory->correction) out_ += correction_text(*e_.memory->correction, style_);
    }
    outside();
    line(fmt::format("  reached in      {}: {}", e_.steps[e_.worst].name, where));
    for (size_t i = 0; i < e_.steps.size(); ++i) {
      std::string phases;
      for (size_t p = 0; p < kPhases; ++p)
        if (e_.steps[i].by_phase[p])
          phases += fmt::format("  {} {}", phase_name(static_cast<Phase>(p)), to_string(Bytes{e_.steps[i].by_phase[p]}));
      const std::string& name = e_.steps[i].name;
      line(fmt::format("  {:<14}  {:>11} {}", i == 1 && name == "step 2" ? "steady state" : name, to_string(e_.steps[i].peak),
                       style_.dim(phases + batch_text(name))));
    }
    if (e_.ranks.size() > 1) ranks();
    if (e_.memory)
      line(fmt::format("  saving          {:>11} {}", to_string(e_.memory->resting.bytes),
                       style_.dim("  torch.save: storages go to the host one by one, nothing is added")));
  }

  // Where there is more than one: what each stream's pool has in use at most, which no other gets.
  void pools() {
    std::string each;
    int64_t sum = 0;
    for (size_t s = 0; s < kStreams; ++s) {
      sum += e_.pools[s];
      if (e_.pools[s])
        each += fmt::format("{}{} {}", each.empty() ? "" : ", ", to_string(static_cast<Stream>(s)), to_string(Bytes{e_.pools[s]}));
    }
    if (sum > e_.pools[0])
      line(fmt::format("    pools of streams {:>11}   {}", to_string(Bytes{sum}), style_.dim(each + "; reserved is their sum at least")));
  }

  // All that differ: stages of a pipeline, ranks with other parts.
  void ranks() {
    for (const RankPeak& r : e_.ranks)
      line(fmt::format("  {:<14}  {:>11} {}", r.name, to_string(r.peak), style_.dim("  " + count_text(r.parameters) + " parameters")));
    if (const int64_t more = ranks_of(e_.job).left_out; more > 0)
      line(fmt::format("  {} more ranks  {}", more, style_.dim("not executed: they keep parts of the same size, cut elsewhere")));
  }

  // What memory_analysis() and nvidia-smi say of a compiled step.
  void program() {
    out_ += xla_text(*e_.xla, e_.device, e_.job.program.jax, style_);
    line(fmt::format("  reached in      {}{}{}", phase_name(e_.peak_phase), e_.peak_module.empty() ? "" : ", " + e_.peak_module,
                     e_.peak_op.empty() ? "" : ", " + e_.peak_op));
  }

  // What no counter of the allocator shows.
  void outside() {
    const HostFacts& f = e_.host_facts;
    const auto row = [&](const char* name, Bytes bytes, const char* meaning) {
      if (bytes.count > 0) line(fmt::format("  {:<14}  {:>11}   {}", name, to_string(bytes), style_.dim(meaning)));
    };
    row("paged states", f.managed, "CUDA managed memory, in none of these: on the device as much as fits, the rest in RAM");
    row("swapped blocks", f.weights, "in RAM (--host-memory): frozen weights that take turns on the device");
    row("optimizer", f.optimizer, "in RAM (--host-memory): weights, gradients and states, mostly pinned");
    row("EMA on the host", f.host_ema, "in RAM (--host-memory)");
  }

  void counter(const char* name, const ByteRange& r, const std::string& meaning) {
    line(fmt::format("  {:<14}  {:>11}   {}", name, to_string(r.bytes),
                     style_.dim(fmt::format("{} to {}; ", to_string(r.low), to_string(r.high))) + meaning));
  }

  // What a step that is not a training step was given.
  std::string batch_text(const std::string& step) const {
    const Job& j = e_.job;
    if (step == "evaluation") return fmt::format("  batch {}", j.eval_batch);
    if (step == "sampling") return fmt::format("  {} x {} + {} tokens", j.sampling.batch, j.sampling.prompt, j.sampling.tokens);
    return step == "longest sample" ? fmt::format("  {} tokens", j.longest) : "";
  }

  // One character per slice of the worst step, with the phases named below.
  void curve() {
    if (e_.curve.empty()) return;
    std::string levels, names;
    for (size_t i = 0; i < e_.curve.size(); ++i) {
      levels += style_.level(static_cast<double>(e_.curve[i].bytes.count) / static_cast<double>(e_.peak.count) * 0.999);
      if (i == 0 || e_.curve[i].phase != e_.curve[i - 1].phase) {
        size_t end = i;
        while (end < e_.curve.size() && e_.curve[end].phase == e_.curve[i].phase) ++end;
        std::string name(phase_name(e_.curve[i].phase));
        const size_t width = end - i;
        if (name.size() >= width) name = name.substr(0, std::min<size_t>(3, width));  // "opt"
        names += name + std::string(width - name.size(), ' ');
      }
    }
    line(fmt::format("  over the step   {}", levels));
    line(fmt::format("                  {}", style_.dim(names)));
  }

  void row(const std::string& name, Bytes bytes, int indent) {
    const double share = static_cast<double>(bytes.count) / static_cast<double>(std::max<int64_t>(e_.peak.count, 1));
    const std::string label = std::string(static_cast<size_t>(2 * indent), ' ') + name;
    line(fmt::format("{:<{}} {:>11} {:>8}  {}", label, kNameWidth, to_string(bytes), percent_of(bytes, e_.peak),
                     style_.bar(share, kBarWidth)));
  }

  void tree(const TreeNode& node, int depth) {
    row(node.repeats > 1 ? fmt::format("{} (x {})", node.name, node.repeats) : node.name, node.bytes, depth + 1);
    if (depth == options_.depth) return;
    Bytes small;
    int64_t small_count = 0;
    for (const TreeNode& child : node.children) {
      if (static_cast<double>(child.bytes.count) < options_.smallest * static_cast<double>(e_.peak.count)) {
        small += child.bytes;
        ++small_count;
      } else {
        tree(child, depth + 1);
      }
    }
    if (small_count > 0 && small_count < static_cast<int64_t>(node.children.size()))
      row(fmt::format("[{} smaller]", small_count), small, depth + 2);
  }

  const Estimate& e_;
  const Style& style_;
  const TextOptions& options_;
  std::string out_;
};

nlohmann::ordered_json tree_json(const TreeNode& node) {
  nlohmann::ordered_json j{{"name", node.name}, {"bytes", node.bytes.count}};
  if (node.repeats > 1) j["repeats"] = node.repeats;
  if (!node.children.empty()) {
    j["children"] = nlohmann::ordered_json::array();
    for (const TreeNode& child : node.children) j["children"].push_back(tree_json(child));
  }
  return j;
}

}  // namespace

std::map<std::string, int64_t> parameters_by_part(const Estimate& e, size_t depth) {
  std::map<std::string, int64_t> parts;
  for (const ParameterRecord& p : e.parameter_list) {
    const std::vector<std::string> names = split_at(p.name, '.');
    std::string part;
    for (size_t i = 0; i + 1 < names.size() && i < depth; ++i) part += (i ? "." : "") + names[i];
    parts[part.empty() ? p.name : part] += p.elements;
  }
  return parts;
}

std::string estimate_text(const Estimate& e, const Style& style, const TextOptions& options) { return Writer(e, style, options).write(); }

nlohmann::ordered_json estimate_json(const Estimate& e) {
  nlohmann::ordered_json j{{"schema", kEstimateSchema},
                           {"command", "estimate"},
                           {"job", job_json(e.job)},
                           {"parameters", e.parameters},
                           {"trainable_parameters", e.trainable},
                           {"peak_bytes", e.peak.count},
                           {"allocated_peak_bytes", nullptr},
                           {"reserved_peak_bytes", nullptr},
                           {"device_peak_bytes", nullptr},
                           {"memory", nullptr}};
  if (e.memory) {
    j["allocated_peak_bytes"] = e.memory->allocated.bytes.count;
    j["reserved_peak_bytes"] = e.memory->reserved.bytes.count;
    j["device_peak_bytes"] = e.memory->device.bytes.count;
    j["memory"] = {{"allocated", range_json(e.memory->allocated)},
                   {"reserved", range_json(e.memory->reserved)},
                   {"device", range_json(e.memory->device)},
                   {"resting", range_json(e.memory->resting)},
                   {"overheads", overheads_json(e.memory->overheads)}};
    if (e.memory->correction) j["memory"]["correction"] = correction_json(*e.memory->correction);
  }
  if (e.xla) j["xla"] = xla_json(*e.xla);
  j["paged_state_bytes"] = e.host_facts.managed.count;
  j["host_ema_bytes"] = e.host_facts.host_ema.count;
  j["peak"] = {{"step", e.worst + 1}, {"phase", phase_name(e.peak_phase)}, {"module", e.peak_module}, {"op", e.peak_op}};
  j["steps"] = nlohmann::ordered_json::array();
  for (const StepEstimate& s : e.steps) {
    nlohmann::ordered_json phases = nlohmann::ordered_json::object();
    for (size_t p = 0; p < kPhases; ++p)
      if (s.by_phase[p]) phases[std::string(phase_name(static_cast<Phase>(p)))] = s.by_phase[p];
    j["steps"].push_back({{"name", s.name}, {"peak_bytes", s.peak.count}, {"phase", phase_name(s.phase)}, {"phase_peak_bytes", phases}});
  }
  j["pool_peak_bytes"] = nlohmann::ordered_json::object();
  int64_t pool_sum = 0;
  for (size_t s = 0; s < kStreams; ++s) {
    pool_sum += e.pools[s];
    if (e.pools[s]) j["pool_peak_bytes"][to_string(static_cast<Stream>(s))] = e.pools[s];
  }
  j["pool_sum_bytes"] = pool_sum;
  j["ranks"] = nlohmann::ordered_json::array();
  for (const RankPeak& r : e.ranks)
    j["ranks"].push_back({{"name", r.name}, {"parameters", r.parameters}, {"allocated_bytes", r.peak.count}});
  j["ranks_not_executed"] = e.ranks.empty() ? 0 : ranks_of(e.job).left_out;
  j["parameters_by_part"] = parameters_by_part(e, 1);
  j["by_category"] = tree_json(e.by_category);
  j["category_peak_bytes"] = nlohmann::ordered_json::object();
  for (size_t c = 0; c < kCategories; ++c)
    if (e.category_peaks[c].count)
      j["category_peak_bytes"][std::string(category_name(static_cast<Category>(c)))] = e.category_peaks[c].count;
  j["by_module"] = tree_json(e.by_module);
  j["largest"] = nlohmann::ordered_json::array();
  for (const LiveTensor& t : e.top)
    j["largest"].push_back({{"bytes", t.bytes.count},
                            {"count", t.count},
                            {"category", category_name(t.category)},
                            {"module", t.module},
                            {"op", t.op},
                            {"shape", t.shape}});
  return j;
}

}  // namespace plimsoll
