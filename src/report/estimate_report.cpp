#include "report/estimate_report.h"
#include "job/distribution.h"
#include "report/schema_versions.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "model/weights_only.h"
#include "program/ranks.h"
#include "report/captured_report.h"
#include "report/counters.h"
#include "report/estimate_screen.h"
#include "report/fit_report.h"
#include "report/job_report.h"
#include "report/xla_report.h"
#include "util/text.h"

namespace plimsoll {

namespace {

std::string count_text(int64_t n) {
  if (n >= 1'000'000'000) return fmt::format("{:.2f} B", static_cast<double>(n) / 1e9);
  if (n >= 1'000'000) return fmt::format("{:.1f} M", static_cast<double>(n) / 1e6);
  return with_commas(n);
}

// Where the peak is, and the op that made it: "step 2, in the backward pass of transformer.h.11 (gelu)".
std::string peak_place(const Estimate& e) {
  const std::string phrase = peak_phrase(e);
  return e.peak_op.empty() || phrase.ends_with(')') ? phrase : fmt::format("{} ({})", phrase, e.peak_op);
}

doc::Fact counter(const char* name, const ByteRange& r, const std::string& meaning) {
  return {name, r.bytes, doc::dim(doc::interval(r.low, r.high) + "; ") + meaning};
}

// Where there is more than one: what each stream's pool has in use at most, which no other gets.
void add_pools(doc::Facts& facts, const Estimate& e) {
  std::vector<doc::Text> each;
  int64_t sum = 0;
  for (size_t s = 0; s < kStreams; ++s) {
    sum += e.pools[s];
    if (e.pools[s]) each.push_back(doc::Text(to_string(static_cast<Stream>(s))) + " " + Bytes{e.pools[s]});
  }
  if (sum > e.pools[0])
    facts.facts.push_back({"pools of streams", Bytes{sum}, doc::dim(doc::joined(each, ", ") + "; reserved is at least their sum"), 1});
}

void add_counters(doc::Facts& facts, const Estimate& e) {
  facts.facts.push_back({"tensors", doc::bold(e.peak), with_commas(e.peak.count) + " bytes alive at the peak"});
  if (!e.memory) return;
  const Counters& names = counters_of(e);
  facts.facts.push_back(
      counter("allocated", e.memory->allocated, std::string(names.allocated) + ", which counts tensors in blocks of 512 bytes"));
  facts.facts.push_back(counter("reserved", e.memory->reserved, std::string(names.reserved) + ", the segments that hold the blocks"));
  add_pools(facts, e);
  const std::string where = e.device.empty() ? fmt::format("{} (--gpu names yours)", names.card) : e.device;
  facts.facts.push_back(counter("device", e.memory->device,
                                fmt::format("{}: reserved memory and {} on {}", names.device,
                                            e.memory->overheads.empty() ? "nothing that is established" : "the overheads below", where)));
  add_overheads(facts, e.memory->overheads);
  if (e.memory->correction) add_correction(facts, *e.memory->correction);
}

// What no counter of the allocator shows.
void add_outside(doc::Facts& facts, const HostFacts& f) {
  const auto row = [&](const char* name, Bytes bytes, const char* meaning) {
    if (bytes.count > 0) facts.facts.push_back({name, bytes, doc::dim(meaning)});
  };
  row("paged states", f.managed, "CUDA managed memory, in none of these: on the device as much as fits, the rest in RAM");
  row("swapped blocks", f.weights, "in RAM (--host-memory): frozen weights that take turns on the device");
  row("optimizer", f.optimizer, "in RAM (--host-memory): weights, gradients and states, mostly pinned");
  row("EMA on the host", f.host_ema, "in RAM (--host-memory)");
}

// What a step that is not a training step was given.
std::string batch_text(const Job& j, const std::string& step) {
  if (step == "evaluation") return fmt::format("batch {}", j.eval_batch);
  if (step == "sampling") return fmt::format("{} x {} + {} tokens", j.sampling.batch, j.sampling.prompt, j.sampling.tokens);
  return step == "longest sample" ? fmt::format("{} tokens", j.longest) : "";
}

void add_steps(doc::Facts& facts, const Estimate& e) {
  for (size_t i = 0; i < e.steps.size(); ++i) {
    const StepEstimate& step = e.steps[i];
    std::vector<doc::Text> parts;
    for (size_t p = 0; p < kPhases; ++p)
      if (step.by_phase[p]) parts.push_back(doc::Text(phase_name(static_cast<Phase>(p))) + " " + Bytes{step.by_phase[p]});
    if (const std::string given = batch_text(e.job, step.name); !given.empty()) parts.emplace_back(given);
    facts.facts.push_back({i == 1 && step.name == "step 2" ? "steady state" : step.name, step.peak, doc::dim(doc::joined(parts, ", "))});
  }
}

// All that differ: stages of a pipeline, ranks with other parts.
void add_ranks(doc::Facts& facts, const Estimate& e) {
  for (const RankPeak& r : e.ranks) facts.facts.push_back({r.name, r.peak, doc::dim(count_text(r.parameters) + " parameters")});
  if (const int64_t more = ranks_of(e.job).left_out; more > 0)
    facts.facts.push_back({fmt::format("{} more ranks", more), doc::dim("not executed: they keep parts of the same size, cut elsewhere")});
}

doc::Facts peaks(const Estimate& e) {
  doc::Facts out;
  if (e.xla) {
    add_program(out, *e.xla, e.device, e.vendor, e.job.program.jax);
    out.facts.push_back({"peak", peak_place(e)});
    return out;
  }
  add_counters(out, e);
  add_outside(out, e.host_facts);
  out.facts.push_back({"peak", e.steps[e.worst].name + ", " + peak_place(e)});
  add_steps(out, e);
  if (e.ranks.size() > 1) add_ranks(out, e);
  return out;
}

doc::Curve curve(const Estimate& e) {
  doc::Curve out{"over the step", {}, e.peak};
  for (const auto& slice : e.curve) out.levels.push_back({slice.bytes, std::string(phase_name(slice.phase))});
  return out;
}

doc::Tree categories(const Estimate& e) {
  doc::Tree out{{}, e.peak};
  for (const TreeNode& c : e.by_category.children) out.branches.push_back({c.name, c.bytes});
  out.branches.push_back({"total", e.peak, {}, true});
  return out;
}

doc::Branch branch(const TreeNode& node, Bytes peak, int depth, const TextOptions& options) {
  doc::Branch out{node.repeats > 1 ? fmt::format("{} (x {})", node.name, node.repeats) : node.name, node.bytes};
  if (depth == options.depth) return out;
  Bytes small;
  int64_t small_count = 0;
  for (const TreeNode& child : node.children) {
    if (static_cast<double>(child.bytes.count) < options.smallest * static_cast<double>(peak.count)) {
      small += child.bytes;
      ++small_count;
    } else {
      out.children.push_back(branch(child, peak, depth + 1, options));
    }
  }
  if (small_count > 0 && small_count < static_cast<int64_t>(node.children.size()))
    out.children.push_back({fmt::format("[{} smaller]", small_count), small});
  return out;
}

doc::Table largest(const Estimate& e) {
  doc::Table out{{{"together", doc::Kind::size}, {"each", doc::Kind::number}, {"category"}, {"where"}, {"shape"}}};
  if (e.top.empty()) return out;
  const doc::Unit unit = doc::unit_for(times(e.top[0].count, e.top[0].bytes));
  for (const LiveTensor& t : e.top)
    out.rows.push_back({{doc::In{times(t.count, t.bytes), unit}, t.count > 1 ? fmt::format("{} x {}", t.count, to_string(t.bytes)) : "",
                         category_name(t.category), fmt::format("{} ({})", t.module, t.op), doc::dim(t.shape)}});
  return out;
}

std::string certainty(const Estimate& e) {
  if (e.xla) return xla_certainty();
  if (e.job.captured) return captured_certainty(e.job);
  if (e.job.family != kWeightsOnly)
    return "How sure: the step was executed op by op under PyTorch's memory rules, and PyTorch's caching allocator was replayed on what it "
           "allocates. `plimsoll score` checks both against recorded runs to the byte. Intervals are 90 % intervals of the published GPU "
           "runs "
           "that they were fitted to; expect fewer runs inside them elsewhere (docs/accuracy.md).";
  if (e.job.config.find({"weights"}))
    return fmt::format(
        "How sure: the architecture is not known. Parameters, gradients and optimizer are those of its weights, to the byte; activations "
        "are a stand-in, every layer called once on all tokens, which the intervals take to be {} to {} times as large.",
        kStandInActivations.low, kStandInActivations.high);
  return fmt::format(
      "How sure: the architecture is not known. A plain decoder of the same sizes was executed instead; the intervals allow {} to {} times "
      "its parameters, and activations that are {} to {} times as large.",
      kStandInParameters.low, kStandInParameters.high, kStandInActivations.low, kStandInActivations.high);
}

const char* compile_note(const Job& job) {
  return job.checkpointing.on
             ? "torch.compile: as the eager run; its kernels need less in between, which is not modelled where blocks are checkpointed."
             : "torch.compile: the figures are midway between the eager run, whose tensors are shown, and one that keeps only matrix "
               "products; the intervals hold both.";
}

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

std::string recipe_headline(const Estimate& e) {
  if (e.job.captured) return recipe_text(e.job, e.sample);
  const std::string trained = e.trainable == e.parameters ? "" : fmt::format(" ({} trained)", count_text(e.trainable));
  return fmt::format("{} parameters{}{}, {}", count_text(e.parameters), shards_parameters(e.job) ? " on this rank" : "", trained,
                     recipe_text(e.job, e.sample));
}

std::string caution_text(const Estimate& e) {
  if (e.xla || e.job.captured || e.job.family == kWeightsOnly) return certainty(e);
  return e.job.compile ? compile_note(e.job) : "";
}

doc::Document estimate_document(const Estimate& e, const TextOptions& options) {
  doc::Document out{e.job.model, recipe_headline(e)};
  out.blocks.emplace_back(peaks(e));
  if (e.job.captured) doc::append(out.blocks, captured_blocks(e.job));
  if (!e.curve.empty()) out.blocks.emplace_back(curve(e));
  out.blocks.emplace_back(doc::Heading{"What is alive at the peak"});
  out.blocks.emplace_back(categories(e));
  out.blocks.emplace_back(doc::Heading{"Where it is"});
  out.blocks.emplace_back(doc::Tree{{branch(e.by_module, e.peak, 0, options)}, e.peak});
  if (!e.top.empty()) {
    out.blocks.emplace_back(doc::Heading{"Largest tensors at the peak"});
    out.blocks.emplace_back(largest(e));
  }
  if (e.job.compile && !e.xla) out.blocks.emplace_back(doc::Paragraph{doc::dim(compile_note(e.job))});
  out.blocks.emplace_back(doc::Paragraph{doc::dim(certainty(e))});
  if (const char* caveat = counters_of(e).caveat; *caveat != '\0') out.blocks.emplace_back(doc::Paragraph{doc::dim(caveat)});
  return out;
}

doc::Blocks warning_blocks(const Job& job) {
  doc::List list;
  for (const Finding& f : job.findings)
    if (f.effect == Effect::partial || f.effect == Effect::conflict || f.effect == Effect::refused || f.effect == Effect::missing ||
        (f.effect == Effect::unknown && !f.setting.empty()))
      list.items.emplace_back(
          fmt::format("{}: {}{}{}", f.source, f.setting.empty() ? "" : f.setting + ": ", f.what, f.why.empty() ? "" : " (" + f.why + ")"));
  if (list.items.empty()) return {};
  return {doc::Heading{"Warnings"}, std::move(list)};
}

doc::Facts tensors_facts(const Correction& c) {
  const char* what = c.residual.count == 0 ? "as predicted" : "the numbers above are moved by it";
  return {{{"tensors measured before", doc::Change{c.residual},
            doc::dim(fmt::format("{} similar run{} of `measure` on this machine: {} (--no-calibration)", c.runs, c.runs == 1 ? "" : "s",
                                 what))}}};
}

nlohmann::ordered_json findings_json(const Job& job) {
  nlohmann::ordered_json out = nlohmann::ordered_json::array();
  for (const Finding& f : job.findings)
    out.push_back({{"effect", to_string(f.effect)}, {"setting", f.setting}, {"source", f.source}, {"what", f.what}, {"why", f.why}});
  return out;
}

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
  if (e.job.captured) j["captured"] = captured_json(e.job);
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
