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
  if (plan.unfinished) return "unfinished: the best of what was executed before it was ended";
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
  std::string out = fmt::format("{} per step, {} samples/s", seconds_text(t.seconds), rate_text(t.samples_per_second));
  if (t.tokens_per_second > 0) out += fmt::format(", {} tokens/s", rate_text(t.tokens_per_second));
  return out;
}

doc::Text share_text(const Need& n, const TargetDevice& d) {
  return d.capacity ? doc::Text(doc::Share{n.device.bytes, d.capacity->bytes}) : doc::Text("?");
}

// "91 % of 23.64 GiB expected, 99 % at the upper end".
std::string edge_text(const Need& n, const TargetDevice& d) {
  if (!d.capacity || n.device.bytes.count == 0) return "";
  const auto percent = [&](Bytes b) { return 100 * static_cast<double>(b.count) / static_cast<double>(d.capacity->bytes.count); };
  return fmt::format("{:.0f} % of {} expected, {:.0f} % at the upper end", percent(n.device.bytes), to_string(d.capacity->bytes),
                     percent(n.device.high));
}

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

doc::Blocks change_blocks(const Plan& plan, const PlannedRun& run) {
  if (run.changes.empty()) return {doc::Paragraph{"Nothing needs to be changed."}};
  doc::Table table{{{"setting"}, {"now"}, {"plan"}}};
  for (const auto& [key, value] : run.changes.in_order()) {
    if (key == "config") {
      for (const auto& [name, v] : value.items())
        table.rows.push_back({{"config." + name, dump(plan.as_is.job.config.values().value(name, nlohmann::json())), dump(v)}});
      continue;
    }
    const std::string now = value_text(plan.as_is.job, key), then = value_text(run.job, key);
    if (now != then) table.rows.push_back({{key, printable(now, 28), printable(then, 100)}});
  }
  return {std::move(table), doc::Facts{{{"as flags", doc::code(run.changes.flags())}}}};
}

// Rows of one run each: what it needs, whether it fits, how fast it is.
doc::Table runs_table() {
  using doc::Kind;
  return {{{""}, {"needs", Kind::size}, {"", Kind::percent}, {"verdict"}, {"speed"}}};
}

doc::Row run_row(const Plan& plan, const char* name, const PlannedRun& r, const doc::Text& note) {
  doc::Row row{{name, r.need.device.bytes, share_text(r.need, plan.device), verdict_text(r.need.verdict), speed_text(r)}};
  if (!note.empty()) row.details.push_back(doc::dim(note));
  return row;
}

doc::Blocks alternative_blocks(const Plan& plan) {
  if (plan.alternatives.empty()) return {};
  doc::Table table = runs_table();
  for (const Alternative& a : plan.alternatives)
    table.rows.push_back(run_row(plan, to_string(a.kind), a.run, doc::code(a.run.changes.flags())));
  return {doc::Heading{"Faster, but more of a change"}, std::move(table)};
}

// One line on what the trainer has no word for.
doc::Blocks beyond_blocks(const Plan& plan) {
  if (!plan.beyond) return {};
  const PlannedRun& r = plan.beyond->run;
  std::string gain = to_string(plan.beyond->kind);
  if (const double now = plan.best ? per_sample(plan.best->run) : std::nan(""); std::isfinite(now) && std::isfinite(per_sample(r)))
    gain += fmt::format(", {:.0f} % {}", std::abs(1 - per_sample(r) / now) * 100, per_sample(r) <= now ? "faster" : "slower");
  return {doc::Paragraph{doc::Text(fmt::format("With settings that {} has no word for: ", plan.trainer)) + r.need.device.bytes +
                         fmt::format(", {}: --unrestricted", gain)}};
}

doc::Blocks rung_blocks(const std::vector<Rung>& rungs, const char* title, const char* note, const Plan& plan) {
  using doc::Kind;
  if (rungs.empty()) return {};
  doc::Table table{{{"step"}, {"needs", Kind::size}, {"", Kind::percent}, {"per sample", Kind::number}, {"batch"}}};
  for (const Rung& r : rungs) {
    std::string batch = batch_text(r.run);
    if (plan.global && r.run.global_batch != *plan.global) batch += fmt::format(" = {} of {}", r.run.global_batch, *plan.global);
    if (r.run.job.seq != plan.as_is.job.seq) batch += fmt::format(", seq {}", r.run.job.seq);
    if (const std::string checkpointing = to_string(r.run.job.checkpointing); !checkpointing.empty()) batch += ", " + checkpointing;
    table.rows.push_back({{r.name, r.run.need.device.bytes, share_text(r.run.need, plan.device), seconds_text(per_sample(r.run)), batch}});
  }
  return {doc::Heading{title, note}, std::move(table)};
}

std::string slower_text(double slower) {
  if (!std::isfinite(slower)) return "?";
  if (std::abs(slower) < 0.005) return "same";
  return fmt::format("{:+.0f} %", slower * 100);
}

doc::Blocks fix_blocks(const Plan& plan) {
  using doc::Kind;
  doc::Table fixes{{{"", Kind::number}, {"change"}, {"saves", Kind::size}, {"", Kind::percent}, {"time"}, {"training"}, {"flags"}}};
  doc::Facts useless;
  for (const QuickFix& f : plan.fixes) {
    if (f.outcome == LeverOutcome::saves) {
      fixes.rows.push_back(
          {{fmt::format("{}.", fixes.rows.size() + 1), f.lever.name, f.saving, doc::Share{f.saving, plan.as_is.need.device.bytes},
            slower_text(f.slower), to_string(f.lever.kind), doc::code(f.lever.settings.flags())}});
      continue;
    }
    // Why it takes more is not known, and without a reason it only confuses; the JSON has it.
    if (f.outcome != LeverOutcome::costs_memory) useless.facts.push_back({f.lever.name, doc::dim(printable(f.why, 160))});
  }
  doc::Blocks out;
  if (!fixes.rows.empty())
    out = {doc::Heading{"Quick fixes, in order", "each alone, on the run as it is; what disturbs and costs least first"}, std::move(fixes)};
  if (!useless.facts.empty()) doc::append(out, {doc::Heading{"Does not help here"}, std::move(useless)});
  return out;
}

doc::Blocks number_blocks(const Plan& plan) {
  doc::Blocks out;
  if (plan.batch) {
    doc::Facts batch{
        {{"at most", doc::Count{plan.batch->maximum}},
         {"recommended", plan.batch->recommended > 0 ? fmt::format("at most {} (nine tenths of the device)", plan.batch->recommended)
                                                     : std::string("no batch leaves a tenth of the device free")}}};
    if (!plan.batch->note.empty()) batch.facts.push_back({"", plan.batch->note});
    out = {doc::Heading{"Batch size", plan.best ? "per device and micro-step, with this plan" : "with the run as it is"}, std::move(batch)};
  }
  if (!plan.sensitivity.empty()) {
    doc::Facts costs;
    for (const Sensitivity& s : plan.sensitivity) costs.facts.push_back({s.unit, s.bytes});
    doc::append(out, {doc::Heading{"Marginal cost", "allocated memory per extra ..."}, std::move(costs)});
  }
  return out;
}

doc::Blocks shortage_blocks(const Plan& plan) {
  const Shortage& s = *plan.shortage;
  doc::Blocks out{doc::Paragraph{doc::bad(doc::Text("No allowed change makes it fit; at least ") + s.missing + " short.")},
                  doc::Paragraph{doc::Text("The smallest needs ") + s.smallest.need.device.bytes + " (at most " +
                                 s.smallest.need.device.high + "): " + doc::code(s.smallest.changes.flags())}};
  if (s.changes.empty()) {
    out.emplace_back(doc::Paragraph{"No smaller goal was found that would fit."});
    return out;
  }
  doc::Table table{{{"change"}, {"needs", doc::Kind::size}, {"flags"}}};
  for (const GoalChange& g : s.changes) table.rows.push_back({{g.what, g.run.need.device.bytes, doc::code(g.flags)}});
  doc::append(out, {doc::Heading{"What would fit"}, std::move(table)});
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

std::string change_text(const Plan& plan) {
  if (!plan.best) return "";
  const PlannedRun& run = plan.best->run;
  std::string out;
  if (plan.best->kind != LeverKind::same_result) {
    std::vector<std::string> names;
    for (const Lever& l : levers_for(plan.as_is.job))
      if (l.kind != LeverKind::same_result && run.changes.includes(l.settings)) names.push_back(l.name);
    out += fmt::format("This plan means {}{}.\n", to_string(plan.best->kind), names.empty() ? "" : ": " + join(names, ", "));
  }
  if (run.global_batch != plan.as_is.global_batch && plan.as_is_impossible.empty())
    out += fmt::format("The global batch becomes {} (it is {}).\n", run.global_batch, plan.as_is.global_batch);
  return out;
}

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

doc::Blocks front_blocks(const Plan& plan) {
  constexpr int kWidth = 46, kHeight = 10;  // with its words 79 columns
  if (plan.front.size() < 2) return {};
  double low = 1e300, high = 0, fast = 1e300, slow = 0;
  for (const Alternative& a : plan.front) {
    const double x = static_cast<double>(a.run.need.device.bytes.count), y = per_sample(a.run);
    low = std::min(low, x), high = std::max(high, x), fast = std::min(fast, y), slow = std::max(slow, y);
  }
  if (plan.device.capacity) high = std::max(high, static_cast<double>(plan.limit.count));
  // What needs many times the device would press all that is of interest into one column.
  const double most = plan.device.capacity ? std::max(2.0 * static_cast<double>(plan.limit.count), low) : high;
  size_t beyond = 0;
  if (high > most) high = most;
  const auto column = [&](double x) { return high > low ? static_cast<int>(std::lround((x - low) / (high - low) * (kWidth - 1))) : 0; };
  const auto line = [&](double y) { return slow > fast ? static_cast<int>(std::lround((slow - y) / (slow - fast) * (kHeight - 1))) : 0; };
  std::vector<std::vector<std::string>> grid(kHeight, std::vector<std::string>(kWidth, " "));
  if (plan.device.capacity && static_cast<double>(plan.limit.count) >= low)
    for (auto& row : grid) row[column(static_cast<double>(plan.limit.count))] = "│";
  const auto mark = [&](const PlannedRun& r, const char* sign) {
    const double y = per_sample(r);
    if (!std::isfinite(y) || y > slow) return;
    if (static_cast<double>(r.need.device.bytes.count) > high) return void(++beyond);
    const int c = column(static_cast<double>(r.need.device.bytes.count));
    if (c >= 0 && c < kWidth) grid[std::clamp(line(y), 0, kHeight - 1)][c] = sign;
  };
  const LeverKind planned_kind = plan.best ? plan.best->kind : LeverKind::same_result;
  for (const Alternative& a : plan.front)
    if (a.kind > planned_kind) mark(a.run, "◦");
  for (const Alternative& a : plan.front)
    if (a.kind <= planned_kind) mark(a.run, "•");
  if (plan.best) mark(plan.best->run, "◆");
  std::string picture;
  for (int i = 0; i < kHeight; ++i) {
    picture += fmt::format("  {:>10} ┤ ", i == 0 ? seconds_text(slow) : i == kHeight - 1 ? seconds_text(fast) : "");
    for (const std::string& cell : grid[i]) picture += cell;
    while (picture.back() == ' ') picture.pop_back();
    picture += "\n";
  }
  const std::string left = to_string(Bytes{static_cast<int64_t>(low)}), right = to_string(Bytes{static_cast<int64_t>(high)});
  picture += fmt::format("  {:>10}   {}{:>{}}  of device memory\n", "per sample", left, right, kWidth - static_cast<int>(left.size()));
  if (beyond > 0) picture += fmt::format("               {} more need{} over {}\n", beyond, beyond == 1 ? "s" : "", right);
  return {doc::Heading{"Memory against time",
                       fmt::format("of {} candidates; ◆ plan, • as little of a change, ◦ more of a change, │ limit", plan.executed)},
          doc::Preformatted{std::move(picture), true}};
}

namespace {

std::string closing_text(const Plan& plan) {
  return "Memory was executed step by step, as in `plimsoll estimate`; percentages are of the expected need. Times are a roofline "
         "estimate (docs/time.md), good for ranking; " +
         (plan.calibration.empty() ? "--step-time SECONDS ties them to your own machine."
                                   : "they are tied to your machine: " + plan.calibration + ".");
}

doc::Blocks notes_of(const Plan& plan) {
  std::vector<std::string> notes;
  const PlannedRun& shown = plan.best ? plan.best->run : plan.as_is;
  if (shown.need.time)
    for (const std::string& a : shown.need.time->assumptions) notes.push_back("Assumed: " + a + ".");
  if (!plan.extrapolated_from.empty())
    notes.push_back(
        fmt::format("This model loops over tokens: millions of ops per step. The run as it is{} executed in full; the other rows are drawn "
                    "from runs over "
                    "{} to {} tokens, and are too low where memory is fragmented. --full executes all of them, and looks for faster "
                    "recipes that change "
                    "more; it takes many minutes.",
                    plan.best ? " and the plan were" : " was", plan.extrapolated_from[0], plan.extrapolated_from[1]));
  if (plan.shortened)
    notes.emplace_back(
        "Executing one candidate of this run takes seconds, so only the plan was searched; --full adds ladders, quick fixes and "
        "what one more sample or layer takes.");
  notes.push_back(closing_text(plan));
  doc::Blocks out;
  for (const std::string& note : notes) out.emplace_back(doc::Paragraph{doc::dim(note)});
  return out;
}

doc::Blocks best_blocks(const Plan& plan) {
  doc::Blocks out{doc::Heading{"What to change"}};
  doc::append(out, change_blocks(plan, plan.best->run));
  if (plan.global && plan.best->run.global_batch != *plan.global)
    out.emplace_back(doc::Paragraph{fmt::format("The global batch is {} ({}) instead of {}, which this micro-batch does not divide.",
                                                plan.best->run.global_batch, batch_text(plan.best->run), *plan.global)});
  return out;
}

}  // namespace

doc::Document plan_document(const Plan& plan) {
  doc::Text has = plan.device.capacity ? doc::Text(plan.device.capacity->bytes) : doc::Text("memory unknown");
  if (plan.device.others.count > 0)
    has += doc::Text(", of which ") + plan.device.others +
           (one_pool(plan.device) ? " are for the system and the process" : " are in use by others");
  doc::Document out{fmt::format("Plan for {} on {} ({})", plan.as_is.job.model, plan.device.name, doc::print(has)),
                    doc::dim(goal_text(plan))};
  doc::Table runs = runs_table();
  if (plan.as_is_impossible.empty()) runs.rows.push_back(run_row(plan, "as it is", plan.as_is, recipe_text(plan.as_is.job, "")));
  if (plan.best) {
    const std::string edge = edge_text(plan.best->run.need, plan.device);
    runs.rows.push_back(run_row(plan, "plan", plan.best->run, to_string(plan.best->kind) + (edge.empty() ? "" : "; " + edge)));
  }
  for (const std::string& line : split_at(change_text(plan), '\n'))
    if (!line.empty()) out.blocks.emplace_back(doc::Paragraph{doc::bold(line)});
  if (!plan.as_is_impossible.empty()) out.blocks.emplace_back(doc::Paragraph{"As it is, it cannot be run: " + plan.as_is_impossible});
  if (!runs.rows.empty()) out.blocks.emplace_back(std::move(runs));
  if (plan.best) {
    doc::append(out.blocks, best_blocks(plan));
  } else if (plan.shortage) {
    doc::append(out.blocks, shortage_blocks(plan));
  } else {
    out.blocks.emplace_back(doc::Paragraph{doc::bad("There is no plan: " + plan.unanswered + ".")});
  }
  doc::append(out.blocks, beyond_blocks(plan));
  doc::append(out.blocks, alternative_blocks(plan));
  doc::append(out.blocks, front_blocks(plan));
  doc::append(out.blocks, rung_blocks(plan.up, "Ladder", "the same recipe, closer and closer to the limit", plan));
  doc::append(out.blocks, rung_blocks(plan.down, "If it still runs out of memory", "try in this order", plan));
  doc::append(out.blocks, fix_blocks(plan));
  if (!plan.left_out.empty()) out.blocks.emplace_back(doc::Paragraph{left_out_text(plan.left_out)});
  doc::append(out.blocks, number_blocks(plan));
  doc::append(out.blocks, notes_of(plan));
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
  out["trainer"] = plan.trainer.empty() ? Json(nullptr) : Json(plan.trainer);
  out["beyond"] = plan.beyond ? planned_json(plan.beyond->run) : Json(nullptr);
  if (plan.beyond) out["beyond"]["kind"] = to_string(plan.beyond->kind);
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
  for (const Alternative& a : plan.front) {
    out["front"].push_back(planned_json(a.run));
    out["front"].back()["kind"] = to_string(a.kind);
  }
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

doc::Document plans_document(const std::vector<Plan>& plans, const CommandOf& command) {
  using doc::Kind;
  doc::Document out{fmt::format("{} on {} device{}", plans.front().as_is.job.model, plans.size(), plans.size() == 1 ? "" : "s"),
                    doc::dim(goal_text(plans.front()))};
  doc::Table table{
      {{"device"}, {"has", Kind::size}, {"needs", Kind::size}, {"", Kind::percent}, {"per sample", Kind::number}, {"batch"}, {"command"}}};
  for (const Plan& p : plans) {
    doc::Row row{{printable(p.device.name, 30), p.device.capacity ? doc::Text(p.device.capacity->bytes) : doc::Text("?")}};
    if (!p.best) {
      row.details.push_back(doc::bad(p.shortage ? doc::Text("at least ") + p.shortage->missing + " short" : doc::Text(p.unanswered)));
    } else {
      const PlannedRun& r = p.best->run;
      for (const doc::Text& cell : {doc::Text(r.need.device.bytes), share_text(r.need, p.device), doc::Text(seconds_text(per_sample(r))),
                                    doc::Text(batch_text(r)), doc::code(command(r))})
        row.cells.push_back(cell);
    }
    table.rows.push_back(std::move(row));
  }
  out.blocks.emplace_back(std::move(table));
  return out;
}

}  // namespace plimsoll
