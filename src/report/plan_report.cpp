#include "report/plan_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "job/distribution.h"
#include "job/settings.h"
#include "report/fit_report.h"
#include "report/job_report.h"
#include "report/levers_report.h"
#include "util/text.h"

namespace plimsoll {

namespace {

using Json = nlohmann::ordered_json;

const char* goal_text(const Plan& plan) {
  if (plan.fewest) return "the fastest recipe on as few devices as will do";
  switch (plan.objective) {
    case Objective::throughput: return "the fastest recipe that fits";
    case Objective::memory: return "the recipe that needs least";
    case Objective::batch: return "the recipe with the largest micro-batch";
    case Objective::sequence: return "the recipe with the longest sequences";
  }
  return "";
}

std::string seconds_text(double s) {
  if (!std::isfinite(s)) return "?";
  return s >= 100    ? fmt::format("{:.0f} s", s)
         : s >= 1    ? fmt::format("{:.2f} s", s)
         : s >= 1e-3 ? fmt::format("{:.1f} ms", s * 1e3)
                     : fmt::format("{:.0f} us", s * 1e6);
}

double per_sample(const PlannedRun& r) { return r.need.time ? r.need.time->seconds / static_cast<double>(r.global_batch) : std::nan(""); }

// Three digits or more, and no powers of ten.
std::string rate_text(double r) { return r >= 100 ? fmt::format("{:.0f}", r) : fmt::format("{:.3g}", r); }

std::string speed_text(const PlannedRun& r) {
  if (!r.need.time) return "speed unknown";
  const StepTime& t = *r.need.time;
  std::string out = fmt::format("{} a step, {} samples/s", seconds_text(t.seconds), rate_text(t.samples_per_second));
  if (t.tokens_per_second > 0) out += fmt::format(", {} tokens/s", rate_text(t.tokens_per_second));
  return out;
}

std::string share_text(const Need& n, const TargetDevice& d) { return d.capacity ? percent_of(n.device.high, d.capacity->bytes) : "?"; }

std::string batch_text(const PlannedRun& r) {
  std::string out = fmt::format("{}", r.job.batch);
  if (r.job.accumulation > 1) out += fmt::format(" x {}", r.job.accumulation);
  if (replica_count(r.job) > 1) out += fmt::format(" x {} devices", replica_count(r.job));
  return out;
}

// The value a setting has in a job, as it is written.
std::string value_text(const Job& job, const std::string& key) {
  const Json v = value_of(job, key);
  const bool is_part = find_setting(key)->group == SettingGroup::parallel || key == "offload_optimizer";
  if (v.empty() || v == "" || (is_part && v == false)) return "-";
  return v.is_string() ? v.get<std::string>() : dump(v);
}

std::string changes_text(const Plan& plan, const PlannedRun& run, const Style& style) {
  if (run.changes.empty()) return "  Nothing needs to be changed.\n";
  std::string out = style.dim(fmt::format("  {:<22} {:<28} {}", "setting", "now", "plan")) + "\n";
  for (const auto& [key, value] : run.changes.in_order()) {
    if (key == "config") {
      for (const auto& [name, v] : value.items())
        out += fmt::format("  {:<22} {:<28} {}\n", "config." + name, dump(plan.as_is.job.config.values().value(name, nlohmann::json())),
                           dump(v));
      continue;
    }
    const std::string now = value_text(plan.as_is.job, key), then = value_text(run.job, key);
    if (now != then) out += fmt::format("  {:<22} {:<28} {}\n", key, printable(now, 28), printable(then, 100));
  }
  return out + style.dim("  as flags: ") + run.changes.flags() + "\n";
}

std::string head_row(const Plan& plan, const char* name, const PlannedRun& r, const std::string& note, const Style& style) {
  const std::string verdict = to_string(r.need.verdict);
  return fmt::format(
      "  {:<10} {:>11} {:>8}   {:<13} {}{}\n", name, to_string(r.need.device.bytes), share_text(r.need, plan.device),
      r.need.verdict == Verdict::fits ? style.green(fmt::format("{:<13}", verdict)) : style.red(fmt::format("{:<13}", verdict)),
      speed_text(r), note.empty() ? "" : style.dim("  " + note));
}

std::string alternatives_text(const Plan& plan, const Style& style) {
  if (plan.alternatives.empty()) return "";
  std::string out = "\n" + style.bold("Faster, but more of a change") + "\n";
  for (const Alternative& a : plan.alternatives) {
    out += head_row(plan, "", a.run, to_string(a.kind), style);
    out += style.dim("    " + a.run.changes.flags()) + "\n";
  }
  return out;
}

std::string rungs_text(const std::vector<Rung>& rungs, const char* title, const char* note, const Plan& plan, const Style& style) {
  if (rungs.empty()) return "";
  size_t width = 8;
  for (const Rung& r : rungs) width = std::max(width, r.name.size());
  std::string out = "\n" + style.bold(title) + style.dim(std::string("  ") + note) + "\n";
  for (const Rung& r : rungs) {
    std::string batch = batch_text(r.run);
    if (plan.global && r.run.global_batch != *plan.global) batch += fmt::format(" = {} of {}", r.run.global_batch, *plan.global);
    const std::string checkpoints = to_string(r.run.job.checkpointing);
    out += fmt::format(
        "  {:<{}} {:>11} {:>8}  {} a sample   batch {}{}{}\n", r.name, width, to_string(r.run.need.device.bytes),
        plan.device.capacity ? fmt::format("{:.1f} %", r.share * 100) : "?", fmt::format("{:>8}", seconds_text(per_sample(r.run))), batch,
        r.run.job.seq != plan.as_is.job.seq ? fmt::format(", seq {}", r.run.job.seq) : "", checkpoints.empty() ? "" : ", " + checkpoints);
  }
  return out;
}

std::string slower_text(double slower) {
  if (!std::isfinite(slower)) return "time ?";
  if (std::abs(slower) < 0.005) return "same time";
  return fmt::format("{:+.0f} % time", slower * 100);
}

std::string fixes_text(const Plan& plan, const Style& style) {
  std::string out;
  size_t width = 10;
  for (const QuickFix& f : plan.fixes)
    if (f.outcome == LeverOutcome::saves) width = std::max(width, f.lever.name.size());
  int n = 0;
  for (const QuickFix& f : plan.fixes) {
    if (f.outcome != LeverOutcome::saves) continue;
    out += fmt::format("  {:>2}. {:<{}} saves {:>10} {:>8}   {:<14} {:<18} {}\n", ++n, f.lever.name, width, to_string(f.saving),
                       percent_of(f.saving, plan.as_is.need.device.bytes), slower_text(f.slower), to_string(f.lever.kind),
                       style.dim(f.lever.settings.flags()));
  }
  if (n > 0)
    out = "\n" + style.bold("Quick fixes, in order") + style.dim("  each alone, on the run as it is; what disturbs and costs least first") +
          "\n" + out;
  std::string useless;
  for (const QuickFix& f : plan.fixes) {
    if (f.outcome == LeverOutcome::saves) continue;
    const std::string why = f.outcome == LeverOutcome::costs_memory ? "takes " + to_string(Bytes{-f.saving.count}) + " more" : f.why;
    useless += fmt::format("  {:<{}}  {}\n", f.lever.name, width, style.dim(printable(why, 160)));
  }
  if (!useless.empty()) out += "\n" + style.bold("Does not help here") + "\n" + useless;
  return out;
}

std::string numbers_text(const Plan& plan, const Style& style) {
  std::string out;
  if (plan.batch) {
    out += "\n" + style.bold("Batch") +
           style.dim(plan.best ? "  with the plan's recipe, a device and micro-step" : "  with the run as it is") + "\n";
    out += plan.batch->recommended > 0 ? fmt::format("  at most {}; recommended at most {} (nine tenths of the device)\n",
                                                     plan.batch->maximum, plan.batch->recommended)
                                       : fmt::format("  at most {}; none leaves a tenth of the device free\n", plan.batch->maximum);
    if (!plan.batch->note.empty()) out += "  " + plan.batch->note + "\n";
  }
  if (!plan.sensitivity.empty()) {
    out += "\n" + style.bold("One more costs") + style.dim("  of allocated memory") + "\n";
    for (const Sensitivity& s : plan.sensitivity) out += fmt::format("  {:<18} {:>12}\n", s.unit, to_string(s.bytes));
  }
  return out;
}

std::string shortage_text(const Plan& plan, const Style& style) {
  const Shortage& s = *plan.shortage;
  std::string out =
      style.red(fmt::format("  Nothing that may be changed makes it fit: {} are missing at the least.", to_string(s.missing))) + "\n";
  out += fmt::format("  The smallest needs {} (at most {}): {}\n", to_string(s.smallest.need.device.bytes),
                     to_string(s.smallest.need.device.high), s.smallest.changes.flags());
  if (s.changes.empty()) return out + "  No smaller goal was found that would fit.\n";
  out += "\n" + style.bold("What would fit") + "\n";
  for (const GoalChange& g : s.changes)
    out += fmt::format("  {:<44} {:>11}   {}\n", g.what, to_string(g.run.need.device.bytes), style.dim(g.flags));
  return out;
}

Json rungs_json(const std::vector<Rung>& rungs) {
  Json out = Json::array();
  for (const Rung& r : rungs) {
    Json row = planned_json(r.run);
    row["name"] = r.name;
    row["share"] = r.share;
    out.push_back(std::move(row));
  }
  return out;
}

}  // namespace

Json planned_json(const PlannedRun& r) {
  Json out{{"changes", Json(r.changes.json())},
           {"flags", r.changes.flags()},
           {"batch", r.job.batch},
           {"accumulation", r.job.accumulation},
           {"devices", replica_count(r.job)},
           {"global_batch", r.global_batch},
           {"seq", r.job.seq},
           {"device_peak", range_json(r.need.device)},
           {"allocated_bytes", r.need.allocated.count},
           {"verdict", to_string(r.need.verdict)},
           {"extrapolated", r.extrapolated}};
  out["time"] = time_json(r.need.time);
  return out;
}

Json time_json(const std::optional<StepTime>& time) {
  if (!time) return nullptr;
  const StepTime& t = *time;
  return {{"step_seconds", t.seconds},
          {"forward", t.forward},
          {"recompute", t.recompute},
          {"backward", t.backward},
          {"optimizer", t.optimizer},
          {"transfers", t.transfers},
          {"communication", t.communication},
          {"bubble", t.bubble},
          {"launch", t.launch},
          {"flops", t.flops},
          {"bytes", t.bytes},
          {"utilisation", t.utilisation},
          {"samples_per_second", t.samples_per_second},
          {"tokens_per_second", t.tokens_per_second},
          {"assumptions", t.assumptions}};
}

std::string front_plot(const Plan& plan, const Style& style) {
  constexpr int kWidth = 60, kHeight = 10;
  if (plan.front.size() < 2) return "";
  double low = 1e300, high = 0, fast = 1e300, slow = 0;
  for (const PlannedRun& r : plan.front) {
    const double x = static_cast<double>(r.need.device.bytes.count), y = per_sample(r);
    low = std::min(low, x), high = std::max(high, x), fast = std::min(fast, y), slow = std::max(slow, y);
  }
  if (plan.device.capacity) high = std::max(high, static_cast<double>(plan.limit.count));
  const auto column = [&](double x) { return high > low ? static_cast<int>(std::lround((x - low) / (high - low) * (kWidth - 1))) : 0; };
  const auto line = [&](double y) { return slow > fast ? static_cast<int>(std::lround((slow - y) / (slow - fast) * (kHeight - 1))) : 0; };
  std::vector<std::vector<std::string>> grid(kHeight, std::vector<std::string>(kWidth, " "));
  if (plan.device.capacity && static_cast<double>(plan.limit.count) >= low)
    for (auto& row : grid) row[column(static_cast<double>(plan.limit.count))] = style.unicode ? "│" : "|";
  const auto mark = [&](const PlannedRun& r, const char* fancy, const char* plain) {
    const double y = per_sample(r);
    if (!std::isfinite(y) || y > slow) return;
    const int c = column(static_cast<double>(r.need.device.bytes.count));
    if (c >= 0 && c < kWidth) grid[std::clamp(line(y), 0, kHeight - 1)][c] = style.unicode ? fancy : plain;
  };
  for (const PlannedRun& r : plan.front) mark(r, "•", "o");
  if (plan.best) mark(plan.best->run, "◆", "P");
  std::string out = "\n" + style.bold("Memory against time") +
                    style.dim(fmt::format("  of {} candidates those that no other beats; {} is the plan, the line is the limit",
                                          plan.executed, style.unicode ? "◆" : "P")) +
                    "\n";
  for (int i = 0; i < kHeight; ++i) {
    const std::string label = i == 0 ? seconds_text(slow) : i == kHeight - 1 ? seconds_text(fast) : "";
    out += fmt::format("  {:>9} {} ", label, style.unicode ? "┤" : "+");
    for (const std::string& cell : grid[i]) out += cell;
    while (out.back() == ' ') out.pop_back();
    out += "\n";
  }
  const std::string left = to_string(Bytes{static_cast<int64_t>(low)}), right = to_string(Bytes{static_cast<int64_t>(high)});
  return out + fmt::format("  {:>9}   {}{:>{}}  {}\n", "a sample", left, right, kWidth - static_cast<int>(left.size()),
                           style.dim("of device memory"));
}

std::string plan_text(const Plan& plan, const Style& style) {
  std::string has = plan.device.capacity ? to_string(plan.device.capacity->bytes) : "memory unknown";
  if (plan.device.others.count > 0)
    has += fmt::format(", of which {} {}", to_string(plan.device.others),
                       one_pool(plan.device) ? "are for the system and the process" : "are in use by others");
  std::string out = style.bold(fmt::format("Plan for {} on {} ({})", plan.as_is.job.model, plan.device.name, has)) +
                    style.dim(fmt::format("  {}", goal_text(plan))) + "\n";
  if (plan.as_is_impossible.empty()) {
    out += head_row(plan, "as it is", plan.as_is, recipe_text(plan.as_is.job, ""), style);
  } else {
    out += "  as it is   cannot be run: " + plan.as_is_impossible + "\n";
  }
  if (plan.best) {
    out += head_row(plan, "plan", plan.best->run, to_string(plan.best->kind), style);
    out += "\n" + style.bold("What to change") + "\n" + changes_text(plan, plan.best->run, style);
    if (plan.global && plan.best->run.global_batch != *plan.global)
      out += fmt::format("  The total batch is {} ({}) in place of {}, which such micro-batches do not make.\n",
                         plan.best->run.global_batch, batch_text(plan.best->run), *plan.global);
  } else if (plan.shortage) {
    out += shortage_text(plan, style);
  } else {
    out += style.red(fmt::format("  There is no plan: {}.", plan.unanswered)) + "\n";
  }
  out += alternatives_text(plan, style);
  out += front_plot(plan, style);
  out += rungs_text(plan.up, "Ladder", "the same recipe, closer and closer to the edge", plan, style);
  out += rungs_text(plan.down, "After an OOM", "one step after the other, what disturbs least first", plan, style);
  out += fixes_text(plan, style);
  if (!plan.left_out.empty()) out += "\n" + left_out_text(plan.left_out);
  out += numbers_text(plan, style);
  const PlannedRun& shown = plan.best ? plan.best->run : plan.as_is;
  if (shown.need.time && !shown.need.time->assumptions.empty()) out += "\n";
  if (shown.need.time)
    for (const std::string& a : shown.need.time->assumptions) out += style.dim("  Assumed: " + a) + "\n";
  if (!plan.extrapolated_from.empty())
    out += style.dim(fmt::format(
        "\nThis model loops over tokens: millions of ops a step. The run as it is{} executed in full; the other rows are drawn from runs\n"
        "over {} to {} tokens, and are too low where memory is fragmented. --full executes all of them, and looks for faster recipes that\n"
        "change more; it takes many minutes.\n",
        plan.best ? " and the plan were" : " was", plan.extrapolated_from[0], plan.extrapolated_from[1]));
  if (plan.shortened)
    out += style.dim(
        "\nExecuting one candidate of this run takes seconds, so only the plan was searched; --full adds ladders, quick fixes and what "
        "one\n"
        "more sample or layer takes.\n");
  out += style.dim(
      "\nMemory was executed step by step, as in `plimsoll estimate`; percents are of the upper end of its interval. Times are a roofline\n"
      "estimate (docs/time.md), good for ranking; " +
      (plan.calibration.empty() ? "--step-time SECONDS ties them to your own machine.\n"
                                : "they are tied to your machine: " + plan.calibration + ".\n"));
  return out;
}

namespace {

Json body_json(const Plan& plan) {
  Json out{{"device", plan.device.name},
           {"device_id", plan.device.spec.id},
           {"capacity_bytes", plan.device.capacity ? Json(plan.device.capacity->bytes.count) : Json(nullptr)},
           {"others_bytes", plan.device.others.count},
           {"limit_bytes", plan.limit.count},
           {"goal", plan.fewest ? "gpus" : to_string(plan.objective)},
           {"global_batch", plan.global ? Json(*plan.global) : Json(nullptr)},
           {"job", job_json(plan.as_is.job)},
           {"as_is", planned_json(plan.as_is)}};
  if (!plan.as_is_impossible.empty()) out["as_is"]["impossible"] = plan.as_is_impossible;
  out["plan"] = plan.best ? planned_json(plan.best->run) : Json(nullptr);
  if (plan.best) {
    out["plan"]["kind"] = to_string(plan.best->kind);
    out["plan"]["job"] = job_json(plan.best->run.job);
  }
  out["alternatives"] = Json::array();
  for (const Alternative& a : plan.alternatives) {
    out["alternatives"].push_back(planned_json(a.run));
    out["alternatives"].back()["kind"] = to_string(a.kind);
  }
  if (plan.shortage) {
    Json goals = Json::array();
    for (const GoalChange& g : plan.shortage->changes)
      goals.push_back({{"what", g.what}, {"flags", g.flags}, {"run", planned_json(g.run)}});
    out["shortage"] = {
        {"missing_bytes", plan.shortage->missing.count}, {"smallest", planned_json(plan.shortage->smallest)}, {"would_fit", goals}};
  } else {
    out["shortage"] = nullptr;
  }
  out["unanswered"] = plan.unanswered.empty() ? Json(nullptr) : Json(plan.unanswered);
  out["front"] = Json::array();
  for (const PlannedRun& r : plan.front) out["front"].push_back(planned_json(r));
  out["ladder"] = rungs_json(plan.up);
  out["after_oom"] = rungs_json(plan.down);
  out["fixes"] = Json::array();
  for (const QuickFix& f : plan.fixes) {
    Json row{{"name", f.lever.name},
             {"knob", f.lever.knob},
             {"outcome", to_string(f.outcome)},
             {"kind", to_string(f.lever.kind)},
             {"flags", f.lever.settings.flags()}};
    if (f.outcome != LeverOutcome::impossible) {
      row["saving_bytes"] = f.saving.count;
      row["slower"] = std::isfinite(f.slower) ? Json(f.slower) : Json(nullptr);
    }
    if (!f.why.empty()) row["why"] = f.why;
    out["fixes"].push_back(std::move(row));
  }
  out["left_out"] = left_out_json(plan.left_out);
  out["sensitivity"] = Json::object();
  for (const Sensitivity& s : plan.sensitivity) out["sensitivity"][s.unit] = s.bytes.count;
  out["batch"] = plan.batch ? Json{{"maximum", plan.batch->maximum}, {"recommended", plan.batch->recommended}, {"note", plan.batch->note}}
                            : Json(nullptr);
  out["calibration"] = plan.calibration.empty() ? Json(nullptr) : Json(plan.calibration);
  out["shortened"] = plan.shortened;
  out["extrapolated_from"] = plan.extrapolated_from.empty() ? Json(nullptr) : Json(plan.extrapolated_from);
  out["executed"] = plan.executed;
  return out;
}

}  // namespace

Json plan_json(const Plan& plan) {
  Json out{{"schema", kPlanSchema}, {"command", "plan"}, {"kind", "plan"}};
  out.update(body_json(plan));
  return out;
}

Json plans_json(const std::vector<Plan>& plans, const CommandOf& command) {
  Json out{{"schema", kPlanSchema}, {"command", "plan"}, {"kind", "plans"}, {"plans", Json::array()}};
  for (const Plan& p : plans) {
    Json row = body_json(p);
    row["command"] = p.best ? Json(command(p.best->run)) : Json(nullptr);
    out["plans"].push_back(std::move(row));
  }
  return out;
}

std::string plans_table(const std::vector<Plan>& plans, const CommandOf& command, const Style& style) {
  std::string out =
      style.bold(fmt::format("{} on {} device{}", plans.front().as_is.job.model, plans.size(), plans.size() == 1 ? "" : "s")) +
      style.dim(fmt::format("  {}", goal_text(plans.front()))) + "\n";
  out += style.dim(
             fmt::format("  {:<30} {:>10} {:>11} {:>8}  {:<10} {:<14} {}", "device", "has", "needs", "", "a sample", "batch", "command")) +
         "\n";
  for (const Plan& p : plans) {
    const std::string has = p.device.capacity ? to_string(p.device.capacity->bytes) : "?";
    if (!p.best) {
      const std::string why = p.shortage ? to_string(p.shortage->missing) + " are missing at the least" : p.unanswered;
      out += fmt::format("  {:<30} {:>10} {}\n", printable(p.device.name, 30), has, style.red(why));
      continue;
    }
    const PlannedRun& r = p.best->run;
    out +=
        fmt::format("  {:<30} {:>10} {:>11} {:>8}  {:<10} {:<14} {}\n", printable(p.device.name, 30), has, to_string(r.need.device.bytes),
                    share_text(r.need, p.device), seconds_text(per_sample(r)), batch_text(r), style.dim(command(r)));
  }
  return out;
}

}  // namespace plimsoll
