#include "supervise/dry_run.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "supervise/found_settings.h"
#include "supervise/resume.h"
#include "supervise/run_folder.h"
#include "util/text.h"

namespace plimsoll {

namespace {

using DryRunJson = nlohmann::ordered_json;

std::vector<RunValues> sizes_of(const SupervisorRequest& request, const RunValues& now) {
  BatchScaler scaler(scaler_settings(request, now));
  const auto size = [&]() -> RunValues { return {scaler.batch(), static_cast<int64_t>(scaler.step().size()), now.workers}; };
  std::vector<RunValues> out{size()};
  StepReport oom;
  oom.out_of_memory = true;
  while (scaler.report(oom).action != ScalerAction::give_up) out.push_back(size());
  return out;
}

DryRunJson known(int64_t value, int64_t unknown) { return value == unknown ? DryRunJson(nullptr) : DryRunJson(value); }

DryRunJson values_json(const RunValues& v) {
  return {{"batch", known(v.batch, 0)}, {"accumulation", known(v.accumulation, 0)}, {"workers", known(v.workers, -1)}};
}

}  // namespace

DryRun dry_run(const SupervisorRequest& request) {
  DryRun out;
  const auto [settings, why, note] = found_settings(request);
  if (settings) {
    out.settings = settings->now();
    out.written_as = settings->how();
    out.taken_by_name = note;
    if (out.settings.batch > 0) out.sizes = sizes_of(request, out.settings);
  }
  if (!settings) out.unchangeable = why;
  out.simulated = static_cast<bool>(request.predict);
  out.resume_flag = request.resume_flag.empty() ? resume_of_trainer(request.command).flag : request.resume_flag;
  out.state = request.folder.empty() ? usual_folder(request.command) : request.folder;
  out.notes = request.first_notes;
  return out;
}

std::string to_text(const DryRun& run) {
  std::string out;
  if (!run.unchangeable.empty()) {
    out += fmt::format("settings   cannot be changed: {}\n", run.unchangeable);
  } else {
    out += fmt::format("settings   {}, written as {}\n", to_string(run.settings), run.written_as);
    if (!run.taken_by_name.empty()) out += "           " + run.taken_by_name + "\n";
    std::vector<std::string> sizes;
    const bool accumulates = run.settings.accumulation > 0;  // without a flag for it only the batch is told
    for (const RunValues& v : run.sizes)
      sizes.push_back(accumulates ? fmt::format("{} x {}", v.batch, v.accumulation) : std::to_string(v.batch));
    if (!sizes.empty()) out += fmt::format("after OOM  {}{}\n", join(sizes, ", then "), run.simulated ? " (or by simulation)" : "");
    if (run.settings.workers > 0)
      out += fmt::format("workers    {} at first, half as many each time the host runs out\n", run.settings.workers);
  }
  out += fmt::format("resumes    {}\n", run.resume_flag.empty() ? "not: as the command does by itself" : "by " + run.resume_flag);
  out += fmt::format("state      {}\n", run.state);
  for (const std::string& note : run.notes) out += "estimate   " + note + "\n";
  return out;
}

DryRunJson to_json(const DryRun& run) {
  DryRunJson sizes = DryRunJson::array();
  for (const RunValues& v : run.sizes) sizes.push_back({{"batch", v.batch}, {"accumulation", v.accumulation}});
  return {{"schema", 1},
          {"command", "run"},
          {"settings", values_json(run.settings)},
          {"written_as", run.written_as},
          {"taken_by_name", run.taken_by_name},
          {"unchangeable", run.unchangeable},
          {"sizes", sizes},
          {"simulated", run.simulated},
          {"resume_flag", run.resume_flag},
          {"state", run.state},
          {"notes", run.notes}};
}

}  // namespace plimsoll
