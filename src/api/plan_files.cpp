#include "api/plan_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "api/plan_generate.h"
#include "formats/writer.h"
#include "plan/ladder.h"
#include "plan/layout_launch.h"
#include "report/fit_report.h"
#include "report/layouts_report.h"
#include "report/plan_report.h"
#include "util/line_diff.h"
#include "util/output_file.h"
#include "util/shell.h"
#include "util/text.h"

namespace plimsoll {

namespace {

const PlannedRun& only_plan(const std::vector<Plan>& plans) {
  if (plans.size() != 1)
    throw Error(fmt::format("[plan] a file is for one device, and {} were named", plans.size()), "name one: --gpu rtx-4090",
                ExitCode::usage);
  const Plan& p = plans.front();
  if (p.best) return p.best->run;
  if (!p.unanswered.empty()) throw Error(fmt::format("[plan] no plan for {}: {}", p.device.name, p.unanswered), "name another device");
  const std::string words = p.trainer.empty() ? "nothing that may be changed" : fmt::format("nothing that {} has a word for", p.trainer);
  throw Error(
      fmt::format("[plan] {} makes it fit on {}: {} are missing at the least", words, p.device.name, to_string(p.shortage->missing)),
      p.trainer.empty() ? "without --flags, --diff, --write and --generate, plan says what would fit"
                        : "--unrestricted plans with settings that it has no word for; without --flags, --diff, --write and "
                          "--generate, plan says what would fit",
      ExitCode::no);
}

std::string notes_of(const Rewritten& r) {
  std::string out;
  for (const auto& [name, value] : r.environment) out += fmt::format("set {}={}\n", name, value);
  for (const Consequence& c : r.consequences)
    out += fmt::format("note: {} becomes {} (was {})\n", c.setting, dump(c.after), dump(c.before));
  for (const NotWritten& n : r.not_written) out += fmt::format("not written: {} {}: {}\n", n.setting, dump(n.value), n.instead);
  return out;
}

// What the new text stands for, executed; it is less than the plan where that could not be written.
Fit as_written(const TrainerWords& words, const Rewritten& file, const TargetDevice& device) {
  Runs runs;
  return fits_of(runs, words.as_read(file), {device}).front();
}

std::string as_written_text(const Fit& fit, const PlannedRun& run) {
  const Bytes need = fit.memory.device.bytes;
  std::string out = fmt::format("as written it needs {}", to_string(need));
  if (fit.device.capacity) out += " of " + to_string(fit.device.capacity->bytes);
  out += fmt::format(": {}", to_string(fit.verdict));
  if (need != run.need.device.bytes) out += fmt::format("; the plan needs {}", to_string(run.need.device.bytes));
  return out + "\n";
}

nlohmann::ordered_json file_json(const Rewritten& r, const std::string& path, const PlannedRun& run) {
  nlohmann::ordered_json written = nlohmann::ordered_json::array(), left = written, more = written;
  for (const WrittenValue& w : r.written) written.push_back({{"key", w.key}, {"before", w.before}, {"after", w.after}});
  for (const NotWritten& n : r.not_written) left.push_back({{"setting", n.setting}, {"value", n.value}, {"instead", n.instead}});
  for (const Consequence& c : r.consequences) more.push_back({{"setting", c.setting}, {"before", c.before}, {"after", c.after}});
  return {{"schema", kPlanSchema},
          {"command", "plan"},
          {"kind", "file"},
          {"path", path},
          {"text", r.text},
          {"written", written},
          {"not_written", left},
          {"consequences", more},
          {"environment", r.environment},
          {"plan", planned_json(run)}};
}

std::string words_of(const JobRequest& job) {
  std::string words;
  for (const std::string& word : job.run) words += " " + shell_quoted(word);
  return words;
}

// The user's own, with the flags and the environment of that plan; empty where there is none, or where these do not say all of it.
std::string training_command(const SearchRequest& request, const TrainerWords& words, const PlannedRun& run) {
  if (request.job.run.size() < 2 || !words.any()) return "";
  const Outcome<Rewritten> file = words.try_rewritten(run.changes);
  if (!file || !file->not_written.empty()) return "";
  Patch changes = run.changes;
  std::string out;
  for (const auto& [name, value] : file->environment) out += fmt::format("{}={} ", name, shell_quoted(value));
  if (!out.empty()) changes.erase("alloc_conf");
  if (words.all_of(changes).empty()) return out + words_of(request.job).substr(1);
  const Outcome<std::string> flags = words.flags(changes);
  return flags ? out + words_of(request.job).substr(1) + " " + *flags : "";
}

// The fastest that fits with all its ranks executed.
std::optional<Layout> fastest_said_by(const LayoutFile& file, const LayoutPlan& plan) {
  for (const Layout& l : plan.fitting) {
    if (!file.says(l)) continue;
    if (Layout whole = confirmed(l, plan.request); fits(whole, plan.request)) return whole;
  }
  return std::nullopt;
}

}  // namespace

std::vector<std::string> unwritten_settings(const SearchRequest& request, const TrainerWords& words, const Plan& plan) {
  if (!plan.best) return {};
  const Outcome<Rewritten> file = words.try_rewritten(plan.best->run.changes);
  if (!file) return {};
  std::vector<std::string> out = TrainerWords::lost(*file, plan.best->run.changes);
  if (request.flags && !words.flags(plan.best->run.changes))
    for (const auto& [setting, value] : plan.best->run.changes)
      if (!words.flags({{setting, value}})) out.push_back(setting);
  // How many processes there are is said by who starts them, unless a file is to say all of it.
  const auto spread = [](const std::string& s) { return s == "ddp" || s == "zero" || s == "zero1" || s == "fsdp"; };
  if (!wants_file(request)) std::erase_if(out, spread);
  return out;
}

void take_consequences(Plan& plan, const TrainerWords& words) {
  if (!plan.best) return;
  const Outcome<Rewritten> file = words.try_rewritten(plan.best->run.changes);
  if (!file || file->consequences.empty()) return;
  Patch changes = plan.best->run.changes;
  for (const Consequence& c : file->consequences) changes.set(c.setting, c.after);
  Evaluator evaluator(plan.as_is.job, {plan.device});
  const Candidate& c = evaluator.evaluate(changes);
  if (c.needs.empty()) return;
  plan.best->run = planned(c, 0);
  if (!plan.calibration.empty()) plan.best->run.need.time.reset();  // it would not be tied to the user's machine
}

std::string command_for(const SearchRequest& request, const TrainerWords& words, const PlannedRun& run) {
  const std::string own = training_command(request, words, run);
  if (!own.empty()) return own;
  const std::string flags = words.all_of(run.changes).flags(), input = words_of(request.job);
  const std::string file = request.job.job_file.empty() ? "" : " --job " + shell_quoted(request.job.job_file);
  const std::string settings = file + (flags.empty() ? "" : " ") + flags;
  return request.job.run.size() > 1 ? "plimsoll estimate" + settings + " --" + input : "plimsoll estimate" + input + settings;
}

bool wants_file(const SearchRequest& r) { return r.flags || r.diff || !r.write.empty() || !r.generate.empty(); }

namespace {

ExitCode answer_with_flags(const TrainerWords& words, const Plan& plan, const Show& show) {
  const PlannedRun& run = plan.best->run;
  const Outcome<std::string> own = words.any() ? words.flags(run.changes) : Outcome<std::string>{run.changes.flags(), {}};
  if (!own) throw *own.refused;
  show.note(change_text(plan));
  if (!plan.not_in_flags.empty())
    show.note(fmt::format("{} is not used: no flag of {} says it; --diff plans with it", join(plan.not_in_flags, ", "), plan.trainer));
  show([&] { return doc::preformatted(*own); },
       [&] {
         return nlohmann::ordered_json{
             {"schema", kPlanSchema}, {"command", "plan"}, {"kind", "flags"}, {"flags", *own}, {"class", to_string(plan.best->kind)}};
       });
  return ExitCode::ok;
}

}  // namespace

ExitCode answer_with_file(const SearchRequest& request, const TrainerWords& words, const std::vector<Plan>& plans, const Show& show) {
  const PlannedRun& run = only_plan(plans);
  const Plan& plan = plans.front();
  if (!request.generate.empty()) return answer_with_generated(request, plan, show);
  if (request.flags) return answer_with_flags(words, plan, show);
  const Rewritten file = words.rewritten(run.changes);
  const Fit written = as_written(words, file, plan.device);
  if (!request.write.empty()) write_output_file(request.write, file.text);
  const std::string notes = notes_of(file) + as_written_text(written, run);
  const std::string difference = request.diff ? line_diff(words.document().text, file.text, words.document().name) : "";
  const char* unchanged = file.environment.empty() ? "nothing needs to be changed\n" : "no line of it changes; a variable is to be set:\n";
  show(
      [&] {
        std::string text = change_text(plan);
        if (request.diff) text += difference.empty() ? unchanged : difference;
        if (!request.write.empty()) text += fmt::format("{} written\n", request.write);
        return doc::preformatted(text + notes);
      },
      [&] {
        nlohmann::ordered_json out = file_json(file, request.write, run);
        out["class"] = to_string(plan.best->kind);
        if (request.diff) out["diff"] = difference;
        out["as_written"] = {{"device_peak", range_json(written.memory.device)}, {"verdict", to_string(written.verdict)}};
        return out;
      });
  return exit_code_of({written});
}

ExitCode answer_with_launch_file(const SearchRequest& request, const LayoutPlan& plan, const Show& show) {
  const LayoutFile& file = layout_file(request.generate);
  if (plan.fitting.empty())
    throw Error(fmt::format("[plan] no layout of {} devices fits", request.world), "without --generate, plan says what would",
                ExitCode::no);
  const std::optional<Layout> said = fastest_said_by(file, plan);
  if (!said)
    throw Error(fmt::format("[plan] a file for {} says none of the {} layouts that fit", file.name, plan.fitting.size()),
                "torchrun starts PyTorch's own, torchtitan and megatron theirs; --layouts chooses the kind", ExitCode::no);
  const std::string text = file.text(*said, request.node);
  if (!request.write.empty()) write_output_file(request.write, text);
  show([&] { return doc::preformatted(request.write.empty() ? text : fmt::format("{} written", request.write)); },
       [&] {
         return nlohmann::ordered_json{{"schema", kPlanSchema}, {"command", "plan"}, {"kind", "file"},
                                       {"path", request.write}, {"text", text},      {"layout", layout_json(*said)}};
       });
  return ExitCode::ok;
}

}  // namespace plimsoll
