#include "api/plan_generate.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>

#include "formats/generated_run.h"
#include "job/distribution.h"
#include "job/settings.h"
#include "report/fit_report.h"
#include "report/plan_report.h"
#include "util/output_file.h"
#include "util/text.h"

namespace plimsoll {

namespace {

constexpr int kSearches = 8;  // until file and command say all of a plan

// What file and command start in place of a plan.
struct Started {
  GeneratedRun run;
  Job job;
  std::vector<std::string> lost;  // settings that are changed by the plan, or are its layout, and are not what was planned
};

// How it is spread, and over how many.
nlohmann::json layout_of(const Job& job) {
  const auto& zero = job.parallel.deepspeed;
  return {spread_of(job), world_size(job), zero ? zero->stage : 0};
}

// Of a mapping, the fields that the change names; the others are the trainer's own.
bool is_as_planned(const nlohmann::json& change, const nlohmann::json& planned, const nlohmann::json& got) {
  if (planned == got) return true;
  if (!planned.is_object() || !got.is_object()) return false;
  if (change.is_string()) return planned.value("type", nlohmann::json()) == got.value("type", nlohmann::json());
  if (!change.is_object()) return false;
  for (const auto& field : change.items())
    if (planned.value(field.key(), nlohmann::json()) != got.value(field.key(), nlohmann::json())) return false;
  return true;
}

Started start(const Job& job, const Patch& changes, LaunchFile kind, int64_t node) {
  Started out{generate_run(job, kind, node), job, {}};
  Outcome<Job> started = outcome_of([&] { return as_started(job, out.run); });
  if (!started) {
    out.lost.push_back("these settings together (" + std::string(started.refused->what()) + ")");
    return out;
  }
  out.job = std::move(*started);
  if (layout_of(out.run.job) != layout_of(job)) out.lost.push_back(spread_of(job).empty() ? "ddp" : spread_of(job));
  for (const auto& [setting, value] : changes) {
    if (setting == "ddp" || setting == "fsdp" || setting == "zero" || setting == "zero1") continue;  // the layout
    const bool same = out.run.said.contains(setting) && is_as_planned(value, value_of(job, setting), value_of(out.job, setting));
    if (!same && setting != "optimizer_args") out.lost.push_back(setting);
  }
  return out;
}

// Names of levers, and of settings, that neither file nor command says.
std::set<std::string> unsaid(const Job& job, LaunchFile kind, int64_t node, int64_t gpus) {
  std::set<std::string> out;
  const auto says = [&](const Patch& changes) {
    const Outcome<Job> changed = try_patched(job, changes, "plan");
    const Outcome<Started> started = changed ? outcome_of([&] { return start(*changed, changes, kind, node); }) : Outcome<Started>{};
    return started && started->lost.empty();
  };
  for (const Lever& l : levers_for(job))
    if (l.knob != "batch" && !says(l.settings)) out.insert(l.name);
  for (const auto& [setting, value] : {std::pair<const char*, nlohmann::json>{"batch", job.batch + 1},
                                       {"accumulation", job.accumulation + 1},
                                       {"checkpointing", !job.checkpointing.on}})
    if (!says({{setting, value}})) out.insert(setting);
  // transformers' Trainer: "Using --fsdp xxx together with --deepspeed yyy is not possible".
  if (kind == LaunchFile::deepspeed) out.insert("fsdp");
  if (gpus > 1)
    for (const char* spread : {"ddp", "fsdp", "zero1", "zero"})
      if (!says({{spread, {{"world", gpus}}}})) out.insert(spread);
  return out;
}

Fit fit_of(const Job& job, const TargetDevice& device) {
  Runs runs;
  return fits_of(runs, job, {device}).front();
}

}  // namespace

std::vector<Plan> plans_to_generate(const SearchRequest& request, const PlanRequest& asked, const std::vector<TargetDevice>& devices) {
  if (devices.size() != 1)
    throw Error(fmt::format("[plan] a file is for one device, and {} were named", devices.size()), "name one: --gpu rtx-4090",
                ExitCode::usage);
  const LaunchFile kind = parse_launch_file(request.generate);
  PlanRequest plan = asked;
  plan.constraints.placements = false;
  plan.constraints.without = unsaid(plan.job, kind, request.node, plan.constraints.gpus);
  std::vector<Plan> plans = make_plans(plan, devices);
  for (int i = 0; i < kSearches && plans[0].best; ++i) {
    const PlannedRun& run = plans[0].best->run;
    const Started started = start(run.job, run.changes, kind, request.node);
    if (started.lost.empty()) break;
    plan.constraints.without.insert(started.lost.begin(), started.lost.end());
    std::vector<Plan> others = make_plans(plan, devices);
    if (!others[0].best) break;
    plans = std::move(others);
  }
  plans[0].trainer = request.generate;
  return plans;
}

ExitCode answer_with_generated(const SearchRequest& request, const Plan& plan, const Show& show) {
  const PlannedRun& run = plan.best->run;
  const Started started = start(run.job, run.changes, parse_launch_file(request.generate), request.node);
  const auto refuse = [&](const std::string& what) {
    throw Error(fmt::format("[plan] {} does not carry this plan out: {}", request.generate, what),
                "another kind of --generate may; without it, plan says what to set", ExitCode::no);
  };
  if (!started.lost.empty()) refuse("it has no word for " + join(started.lost, ", "));
  const Fit fit = fit_of(started.job, plan.device);
  if (fit.verdict != run.need.verdict && fit.verdict != Verdict::unknown)
    refuse(fmt::format("as it is read it needs {} instead of {}: {}", to_string(fit.memory.device.bytes), to_string(run.need.device.bytes),
                       to_string(fit.verdict)));
  if (!request.write.empty()) write_output_file(request.write, started.run.text);
  std::string notes = change_text(plan);
  for (const auto& [name, value] : started.run.environment) notes += fmt::format("set {}={}\n", name, value);
  for (const NotWritten& n : started.run.not_written) notes += fmt::format("in train.py: {} {}: {}\n", n.setting, dump(n.value), n.instead);
  for (const char* setting : {"precision", "autocast", "optimizer", "master_weights", "checkpointing"})
    if (value_of(started.job, setting) != value_of(run.job, setting))
      notes += fmt::format("note: {} becomes {} (planned {})\n", setting, dump(value_of(started.job, setting)),
                           dump(value_of(run.job, setting)));
  notes += fmt::format("start it with: {}\nexecuted as it is read, it needs {} of {}: {}\n", started.run.command,
                       to_string(fit.memory.device.bytes), to_string(plan.device.capacity->bytes), to_string(fit.verdict));
  show(
      [&] {
        if (!request.write.empty()) return doc::preformatted(fmt::format("{} written\n", request.write) + notes);
        show.note(notes);  // the file itself is the answer
        return doc::preformatted(started.run.text);
      },
      [&] {
        nlohmann::ordered_json written = nlohmann::ordered_json::array(), left = written;
        for (const WrittenValue& w : started.run.written) written.push_back({{"key", w.key}, {"before", w.before}, {"after", w.after}});
        for (const NotWritten& n : started.run.not_written)
          left.push_back({{"setting", n.setting}, {"value", n.value}, {"instead", n.instead}});
        return nlohmann::ordered_json{
            {"schema", kPlanSchema},
            {"command", "plan"},
            {"kind", "file"},
            {"path", request.write},
            {"text", started.run.text},
            {"written", written},
            {"not_written", left},
            {"consequences", nlohmann::ordered_json::array()},
            {"environment", started.run.environment},
            {"plan", planned_json(run)},
            {"class", to_string(plan.best->kind)},
            {"start", started.run.command},
            {"as_written", {{"device_peak", range_json(fit.memory.device)}, {"verdict", to_string(fit.verdict)}}}};
      });
  return ExitCode::ok;
}

}  // namespace plimsoll
