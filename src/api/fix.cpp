#include "api/fix.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "api/trainer_words.h"
#include "job/lint.h"
#include "job/settings.h"
#include "plan/smallest_change.h"
#include "report/fit_report.h"
#include "report/plan_report.h"
#include "util/line_diff.h"
#include "util/replace_file.h"
#include "util/shell.h"
#include "util/text.h"

namespace plimsoll {

namespace {

using Json = nlohmann::ordered_json;

TargetDevice only_device_of(const FixRequest& request) {
  DeviceRequest devices = request.devices;
  if (devices.names.empty() && devices.group.empty()) devices.names = {"this"};
  std::vector<TargetDevice> all = devices.devices();
  // Several cards of one kind in this machine are one question.
  const auto same = [&](const TargetDevice& d) { return d.spec.id == all[0].spec.id && !d.spec.id.empty(); };
  if (all.size() > 1 && !std::all_of(all.begin(), all.end(), same))
    throw Error(fmt::format("[fix] a fix is for one device, and {} were named", all.size()), "name one: --gpu rtx-4090", ExitCode::usage);
  return all.front();
}

// What is said about one run.
struct FixAnswer {
  TargetDevice device;
  std::string trainer;
  bool file = false, command = false;  // what the user has; neither: the name of a model
  Fit before;
  SmallestChange change;
  std::optional<Fit> after;         // of the new text, read and executed
  std::optional<Rewritten> text;    // none: flags say it
  std::string diff, flags, backup;  // the difference; plimsoll's own flags; the copy of what was there
  std::string path;
  std::optional<SmallestChange> beyond;  // where nothing fits: with what the trainer has no word for
  size_t executions = 0;
};

bool large(const TargetDevice& d) { return d.capacity && d.capacity->bytes.count >= int64_t{4} << 30; }

// "21.2", or where that says too little "0.87".
std::string gib(Bytes b, const TargetDevice& d) {
  return fmt::format("{:.{}f}", static_cast<double>(b.count) / (1 << 30), large(d) ? 1 : 2);
}

std::string needs_text(const FixAnswer& a, Bytes need) {
  return fmt::format("needs {} of {} GiB", gib(need, a.device), gib(a.device.capacity->bytes - a.device.others, a.device));
}

std::string was_text(const FixAnswer& a) { return fmt::format("(was {})", gib(a.before.memory.device.bytes, a.device)); }

std::string changes_text(const FixAnswer& a) {
  const size_t n = a.change.steps.size();
  return fmt::format("{} change{}", n, n == 1 ? "" : "s");
}

std::string parts_missing(const Fit& fit) { return fit.verdict == Verdict::unknown ? fit.reason : ""; }

std::string headline(const FixAnswer& a) {
  const std::string missing = parts_missing(a.after ? *a.after : a.before), on = a.device.name;
  if (a.change.fits_as_it_is) {
    const std::string needs = needs_text(a, a.before.memory.device.bytes);
    return missing.empty() ? fmt::format("fits {} as it is: {}", on, needs)
                           : fmt::format("unknown whether it fits {}: {}; the rest {} as it is", on, missing, needs);
  }
  if (!a.after)
    return fmt::format("does not fit {}: {}; the smallest {} {}", on,
                       a.file || a.command ? fmt::format("no change that {} has a word for is enough", a.trainer)
                                           : std::string("no change that may be made is enough"),
                       needs_text(a, a.change.shortage->smallest.need.device.bytes), was_text(a));
  const std::string needs = needs_text(a, a.after->memory.device.bytes) + " " + was_text(a);
  if (!missing.empty()) return fmt::format("unknown whether it fits {} after {}: {}; the rest {}", on, changes_text(a), missing, needs);
  return fmt::format("{} {} after {}: {}", to_string(a.after->verdict), on, changes_text(a), needs);
}

std::string slower_text(double slower) {
  if (!std::isfinite(slower)) return "?";
  return std::abs(slower) < 0.005 ? "same" : fmt::format("{:+.0f} %", slower * 100);
}

doc::Blocks cost_blocks(const FixAnswer& a) {
  using doc::Kind;
  doc::Table table{{{"change"}, {"saves", Kind::size}, {"time", Kind::number}, {"training"}}};
  for (const ChangeStep& s : a.change.steps)
    table.rows.push_back(
        {{s.lever.name, s.saving ? doc::Text(*s.saving) : doc::Text("?"), slower_text(s.slower), to_string(s.lever.kind)}});
  doc::Blocks out{doc::Heading{"What it costs", "each on top of those before it; times are estimates"}, std::move(table)};
  const PlannedRun& run = *a.change.run;
  if (run.global_batch != a.change.as_is.global_batch)
    out.emplace_back(doc::Paragraph{fmt::format("The global batch becomes {} (it is {}).", run.global_batch, a.change.as_is.global_batch)});
  if (!a.change.every_smaller_one)
    out.emplace_back(
        doc::Paragraph{doc::dim("There are too many changes to try all: these were found by a search, and none can be left out.")});
  return out;
}

doc::Blocks shortage_blocks(const FixAnswer& a) {
  doc::Table table{{{"what would fit"}, {"needs", doc::Kind::size}, {"ask for it"}}};
  if (a.beyond && a.beyond->run) {
    std::vector<std::string> names;
    for (const ChangeStep& s : a.beyond->steps) names.push_back(s.lever.name);
    table.rows.push_back({{fmt::format("settings that {} has no word for: {}", a.trainer, join(names, ", ")),
                           a.beyond->run->need.device.bytes, doc::code(a.beyond->run->changes.flags())}});
  }
  for (const GoalChange& g : a.change.shortage->changes) table.rows.push_back({{g.what, g.run.need.device.bytes, doc::code(g.flags)}});
  if (table.rows.empty()) return {doc::Paragraph{"Nothing was found that would."}};
  return {std::move(table)};
}

doc::Document document_of(const FixAnswer& a) {
  doc::Document out;
  const bool fits = a.change.fits_as_it_is || a.after;
  const bool known = parts_missing(a.after ? *a.after : a.before).empty();
  out.blocks.emplace_back(doc::Paragraph{!known ? doc::bold(headline(a)) : fits ? doc::good(headline(a)) : doc::bad(headline(a))});
  if (a.change.fits_as_it_is) return out;
  if (!a.after) {
    doc::append(out.blocks, shortage_blocks(a));
    return out;
  }
  if (a.text) {
    for (const auto& [name, value] : a.text->environment) out.blocks.emplace_back(doc::Paragraph{fmt::format("set {}={}", name, value)});
    if (a.command)
      out.blocks.emplace_back(doc::Command{a.text->text});
    else if (!a.diff.empty())
      out.blocks.emplace_back(doc::Preformatted{a.diff, false, true});
    for (const Consequence& c : a.text->consequences)
      out.blocks.emplace_back(doc::Paragraph{fmt::format("{} becomes {} with it (was {})", c.setting, dump(c.after), dump(c.before))});
  } else {
    out.blocks.emplace_back(doc::Paragraph{doc::Text("add ") + doc::code(a.flags)});
  }
  doc::append(out.blocks, cost_blocks(a));
  if (!a.backup.empty()) out.blocks.emplace_back(doc::Paragraph{fmt::format("{} written; {} is as it was", a.path, a.backup)});
  return out;
}

// The keys that say a setting in the user's text; the flag where there is none.
std::string key_of_setting(const FixAnswer& a, const std::string& setting, const std::string& format) {
  if (!a.text) return flag_of(*find_setting(setting));
  const std::string key = key_of(format, setting);
  for (const WrittenValue& w : a.text->written)
    if (w.key == key || w.key == "--" + key || w.key.ends_with("." + key)) return w.key;
  if (a.text->environment.size() == 1 && setting == "alloc_conf") return a.text->environment.begin()->first;
  return key;
}

Json changes_json(const FixAnswer& a, const std::string& format) {
  Json out = Json::array();
  if (!a.change.run) return out;
  const Job &now = a.change.as_is.job, &then = a.change.run->job;
  for (const ChangeStep& s : a.change.steps)
    for (const auto& [setting, value] : s.lever.settings.in_order()) {
      if (setting != "config" && value_of(now, setting) == value_of(then, setting)) continue;
      out.push_back({{"change", s.lever.name},
                     {"setting", setting},
                     {"from", Json(value_of(now, setting))},
                     {"to", Json(value_of(then, setting))},
                     {"key", key_of_setting(a, setting, format)},
                     {"class", to_string(s.lever.kind)},
                     {"saving_bytes", s.saving ? Json(s.saving->count) : Json(nullptr)},
                     {"slower", std::isfinite(s.slower) ? Json(s.slower) : Json(nullptr)}});
    }
  return out;
}

Json state_json(const Fit& fit) {
  return {{"verdict", to_string(fit.verdict)}, {"reason", fit.reason}, {"device_peak", range_json(fit.memory.device)}};
}

Json would_fit_json(const FixAnswer& a) {
  Json out = Json::array();
  if (a.beyond && a.beyond->run)
    out.push_back({{"what", fmt::format("settings that {} has no word for", a.trainer)},
                   {"flags", a.beyond->run->changes.flags()},
                   {"run", planned_json(*a.beyond->run)}});
  if (a.change.shortage)
    for (const GoalChange& g : a.change.shortage->changes)
      out.push_back({{"what", g.what}, {"flags", g.flags}, {"run", planned_json(g.run)}});
  return out;
}

Json json_of(const FixAnswer& a, const std::string& format) {
  return {{"schema", 1},
          {"command", "fix"},
          {"device", a.device.name},
          {"capacity_bytes", a.device.capacity->bytes.count},
          {"trainer", a.trainer},
          {"before", state_json(a.before)},
          {"after", a.after ? state_json(*a.after) : Json(nullptr)},
          {"class", a.change.run ? Json(to_string(a.change.kind)) : Json(nullptr)},
          {"changes", changes_json(a, format)},
          {"plan", a.change.run ? planned_json(*a.change.run) : Json(nullptr)},
          {"flags", a.flags},
          {"diff", a.diff},
          {"text", a.text ? a.text->text : ""},
          {"environment", a.text ? Json(a.text->environment) : Json::object()},
          {"would_fit", would_fit_json(a)},
          {"every_smaller_one", a.change.every_smaller_one},
          {"written", a.backup.empty() ? "" : a.path},
          {"backup", a.backup},
          {"executions", a.executions}};
}

Fit execute_again(const Job& job, const TargetDevice& device) {
  Runs runs;
  return fits_of(runs, job, {device}).front();
}

ChangeRequest change_request(const FixRequest& request, const Job& job, const TargetDevice& device, const Show& show) {
  ChangeRequest out;
  out.job = job;
  out.device = device;
  out.constraints.keep = {request.keep.begin(), request.keep.end()};
  out.constraints.allow = {request.allow.begin(), request.allow.end()};
  out.leave_free = request.leave_free;
  out.progress = show.progress;
  return out;
}

// Every candidate is written, read again and executed before it is taken. Missing parts leave the verdict open, whatever the change.
SmallestChange search_in_words(ChangeRequest request, const TrainerWords& words, FixAnswer& a) {
  request.constraints.without = words.unsaid();
  if (!words.is_script() && words.is_file()) {
    request.last = environment_levers(request.job);
    for (const std::string& name : request.last) request.constraints.without.erase(name);
  }
  request.accept = [&](const PlannedRun& run) {
    Outcome<Rewritten> text = words.try_rewritten(run.changes);
    if (!text || !TrainerWords::lost(*text, run.changes).empty()) return false;
    const Fit fit = execute_again(words.as_read(*text), request.device);
    ++a.executions;
    if (fit.verdict != Verdict::fits && parts_missing(fit).empty()) return false;
    a.text = std::move(*text);
    a.after = fit;
    return true;
  };
  return smallest_change(request);
}

void find_beyond(const ChangeRequest& request, FixAnswer& a) {
  a.beyond = smallest_change(request);
  a.executions += a.beyond->executed;
}

void check(const FixRequest& r, const TrainerWords& words) {
  if (!(r.leave_free >= 0 && r.leave_free < 1))
    throw Error(fmt::format("[fix] {} of the device left free", r.leave_free), "--leave-free is a part, e.g. 0.1", ExitCode::usage);
  if (r.write && !words.is_file())
    throw Error("[fix] --write changes a file in place, and none was named", "leave it out: the changed command or flags are printed",
                ExitCode::usage);
}

}  // namespace

namespace {

const Keys<FixRequest>& fix_keys() {
  using R = FixRequest;
  static const Keys<R> kKeys{
      {"write", &R::write, "", "change the file in place; what was there stays beside it as FILE.orig"},
      {"keep", &R::keep, "KNOB,...", "knobs that stay as they are, as in plan"},
      {"allow", &R::allow, "KNOB,...", "also allow changes to these knobs: seq, model"},
      {"leave_free", &R::leave_free, "PART", "part of the device to leave free, beside the interval", "", {0, 0.99}}};
  return kKeys;
}

}  // namespace

std::vector<RequestKey> fix_request_keys() { return job_keys() + device_keys() + described(fix_keys()); }

FixRequest fix_request(const nlohmann::json& request) {
  const Config fields = request_of(request, fix_request_keys());
  FixRequest out;
  out.job = job_request(fields);
  out.devices = device_request(fields);
  read_keys(fields, fix_keys(), out);
  return out;
}

ExitCode answer(const FixRequest& request, const Show& show) {
  FixAnswer a;
  Job job = request.job.job();
  a.device = only_device_of(request);
  const TrainerWords words(request.job, job);
  check(request, words);
  if (!words.any() && words.is_command()) words.document();  // throws: why nothing can be written into it
  lint(job, GpuFacts{a.device.name, a.device.spec.compute_capability});
  a.file = words.is_file();
  a.command = words.any() && !a.file;
  a.trainer = words.trainer();
  const ChangeRequest search = change_request(request, job, a.device, show);
  a.change = words.any() ? search_in_words(search, words, a) : smallest_change(search);
  a.before = execute_again(job, a.device);
  a.executions += a.change.executed + 1;
  if (a.change.run && !words.any()) {
    a.flags = a.change.run->changes.flags();
    a.after = execute_again(a.change.run->job, a.device);
    ++a.executions;
  }
  if (a.text && a.file) {
    a.diff = line_diff(words.document().text, a.text->text, words.document().name);
    a.path = words.document().path;
    if (request.write && !a.diff.empty()) a.backup = replace_file(a.path, words.document().text, a.text->text);
  }
  if (a.change.shortage && words.any()) find_beyond(search, a);
  show([&] { return document_of(a); }, [&] { return json_of(a, words.any() ? words.format() : ""); });
  if (a.change.fits_as_it_is) return ExitCode::ok;
  return a.after ? exit_code_of({*a.after}) : ExitCode::no;
}

}  // namespace plimsoll
