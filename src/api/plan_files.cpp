#include "api/plan_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "formats/command_line.h"
#include "formats/input.h"
#include "formats/launch_files.h"
#include "formats/writer.h"
#include "model/resolve.h"
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
  throw Error(fmt::format("[plan] nothing that may be changed makes it fit on {}: {} are missing at the least", p.device.name,
                          to_string(p.shortage->missing)),
              "without --flags, --diff, --write and --generate, plan says what would fit", ExitCode::no);
}

// What our own flags changed is not in the document either; the plan has the last word.
Patch changes_of(const Job& job, const PlannedRun& run) {
  Patch out = given_by_flags(job);
  for (const auto& [key, value] : run.changes) out.set(key, value);
  return out;
}

Job as_in_document(const SearchRequest& request) {
  JobRequest plain = request.job;
  plain.settings = {};
  return plain.job();
}

Outcome<Rewritten> try_rewritten(const SearchRequest& request, const Document& document, const Job& job, const PlannedRun& run) {
  return try_rewrite(document, as_in_document(request), changes_of(job, run));
}

Rewritten rewritten(const SearchRequest& request, const Document& document, const Job& job, const PlannedRun& run) {
  return rewrite(document, as_in_document(request), changes_of(job, run));
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
Fit as_written(const Rewritten& file, const TargetDevice& device) {
  Job job = file.job;
  resolve_model(job);
  Runs runs;
  return fits_of(runs, job, {device}).front();
}

// The plan with what the trainer makes of it beside what was asked for, executed.
PlannedRun with_consequences(const Job& job, const Plan& plan, const PlannedRun& run, const Rewritten& file) {
  if (file.consequences.empty()) return run;
  Patch changes = run.changes;
  for (const Consequence& c : file.consequences) changes.set(c.setting, c.after);
  Evaluator evaluator(job, {plan.device});
  const Candidate& c = evaluator.evaluate(changes);
  if (c.needs.empty()) return run;
  PlannedRun out = planned(c, 0);
  if (!plan.calibration.empty()) out.need.time.reset();  // it would not be tied to the user's machine
  return out;
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

// Whether the document can say all of it: by flags, or else anywhere.
bool expresses(const Document& document, const Job& before, const Patch& changes, bool by_flags) {
  if (by_flags) return static_cast<bool>(trainer_flags(document, before, changes));
  const Outcome<Rewritten> file = try_rewrite(document, before, changes);
  return file && file->not_written.empty();
}

std::string words_of(const JobRequest& job) {
  std::string words;
  for (const std::string& word : job.run) words += " " + shell_quoted(word);
  return words;
}

// The user's own, with the flags and the environment of that plan; empty where there is none, or where these do not say all of it.
std::string training_command(const SearchRequest& request, const Job& job, const PlannedRun& run) {
  const std::optional<Document> document = input_document(request.job.run, request.job.job_file);
  if (request.job.run.size() < 2 || !document) return "";
  const Outcome<Rewritten> file = try_rewritten(request, *document, job, run);
  if (!file || !file->not_written.empty()) return "";
  Patch changes = changes_of(job, run);
  std::string out;
  for (const auto& [name, value] : file->environment) out += fmt::format("{}={} ", name, shell_quoted(value));
  if (!out.empty()) changes.erase("alloc_conf");
  if (changes.empty()) return out + words_of(request.job).substr(1);
  const Outcome<std::string> flags = trainer_flags(*document, as_in_document(request), changes);
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

std::set<std::string> inexpressible_levers(const SearchRequest& request, const Job& job) {
  if (!request.generate.empty()) return {};
  const std::optional<Document> document = input_document(request.job.run, request.job.job_file);
  if (!document) return {};
  const Job before = as_in_document(request);
  std::set<std::string> out;
  for (const Lever& l : levers_for(job)) {
    if (l.knob == "batch" || l.knob == "checkpointing") continue;  // not searched as levers
    if (!expresses(*document, before, l.settings, request.flags)) out.insert(l.name);
  }
  return out;
}

std::vector<std::string> unwritten_settings(const SearchRequest& request, const Job& job, const Plan& plan) {
  if (!request.generate.empty() || !plan.best) return {};
  const std::optional<Document> document = input_document(request.job.run, request.job.job_file);
  if (!document) return {};
  const Rewritten file = rewritten(request, *document, job, plan.best->run);
  std::vector<std::string> out;
  if (request.flags && !file.environment.empty()) out.emplace_back("alloc_conf");
  for (const NotWritten& n : file.not_written)
    if (plan.best->run.changes.contains(n.setting)) out.push_back(n.setting);
  return out;
}

std::string command_for(const SearchRequest& request, const Job& job, const PlannedRun& run) {
  const std::string own = training_command(request, job, run);
  if (!own.empty()) return own;
  const std::string words = words_of(request.job), flags = changes_of(job, run).flags();
  const std::string file = request.job.job_file.empty() ? "" : " --job " + shell_quoted(request.job.job_file);
  const std::string settings = file + (flags.empty() ? "" : " ") + flags;
  return request.job.run.size() > 1 ? "plimsoll estimate" + settings + " --" + words : "plimsoll estimate" + words + settings;
}

bool wants_file(const SearchRequest& r) { return r.flags || r.diff || !r.write.empty() || !r.generate.empty(); }

ExitCode answer_with_file(const SearchRequest& request, const Job& job, const std::vector<Plan>& plans, const Show& show) {
  PlannedRun run = only_plan(plans);
  const std::optional<Document> document = input_document(request.job.run, request.job.job_file);
  if (request.flags) {
    const Outcome<std::string> own =
        document ? trainer_flags(*document, as_in_document(request), changes_of(job, run)) : Outcome<std::string>{run.changes.flags(), {}};
    if (!own) throw *own.refused;
    const std::string& flags = *own;
    show([&] { return doc::preformatted(flags); },
         [&] {
           return nlohmann::ordered_json{{"schema", kPlanSchema}, {"command", "plan"}, {"kind", "flags"}, {"flags", flags}};
         });
    return ExitCode::ok;
  }
  Rewritten file;
  std::string original;
  std::optional<Fit> written;
  if (!request.generate.empty()) {
    file = generate(run.job, parse_launch_file(request.generate));
  } else {
    if (!document)
      throw Error("[plan] there is no file or command to write the changes into",
                  "point at one (plimsoll plan train.yaml --gpu ...), or make one: --generate deepspeed", ExitCode::usage);
    file = rewritten(request, *document, job, run);
    original = document->text;
    run = with_consequences(job, plans.front(), run, file);
    written = as_written(file, plans.front().device);
  }
  if (!request.write.empty()) write_output_file(request.write, file.text);
  const std::string notes = notes_of(file) + (written ? as_written_text(*written, run) : "");
  const std::string difference = request.diff ? line_diff(original, file.text, document->name) : "";
  show(
      [&] {
        std::string text = request.diff            ? (difference.empty() ? "nothing needs to be changed\n" : difference)
                           : request.write.empty() ? file.text
                                                   : fmt::format("{} written\n", request.write);
        if (request.diff || !request.write.empty()) return doc::preformatted(text + notes);
        show.note(notes);  // the file itself is the answer
        return doc::preformatted(text);
      },
      [&] {
        nlohmann::ordered_json out = file_json(file, request.write, run);
        if (request.diff) out["diff"] = difference;
        if (written) out["as_written"] = {{"device_peak", range_json(written->memory.device)}, {"verdict", to_string(written->verdict)}};
        return out;
      });
  return written ? exit_code_of({*written}) : ExitCode::ok;
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
