#include "report/layouts_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>

#include "plan/layout_launch.h"
#include "plan/plan.h"
#include "report/fit_report.h"
#include "report/plan_report.h"
#include "report/sizes.h"
#include "step/torchtitan_checks.h"
#include "util/text.h"

namespace plimsoll {

namespace {

using Json = nlohmann::ordered_json;

struct Degrees {
  int64_t tensor = 1, pipeline = 1, context = 1, expert = 1, chunks = 1;
};

Degrees degrees_of(const Job& job) {
  if (const auto& m = job.program.megatron) return {m->tensor, m->pipeline, m->context, m->expert, m->virtual_stages};
  if (const auto& t = job.program.torchtitan) return {t->tensor, t->pipeline, t->context, 1, t->virtual_stages};
  return {job.parallel.tensor ? job.parallel.tensor->world : 1};
}

// Samples that go through the model at once, and how often in a step. A pipeline of torchtitan cuts its batch.
std::pair<int64_t, int64_t> micro_batches_of(const Job& job) {
  const int64_t parts = job.program.torchtitan ? torchtitan_micro_batches(job) : 1;
  return {job.batch / parts, job.accumulation * parts};
}

std::string count(int64_t n) { return n > 1 ? std::to_string(n) : "-"; }

// "FSDP2 x 16 copies, kept whole", "DeepSpeed ZeRO-3".
std::string title_of(const Layout& l) {
  std::string out = l.kind;
  const ParallelSettings& p = l.job.parallel;
  if (p.deepspeed)
    out += fmt::format(" ZeRO-{}{}", p.deepspeed->stage, p.deepspeed->stage < 3 && p.deepspeed->overlap_comm ? ", overlap" : "");
  const auto& titan = l.job.program.torchtitan;
  if (titan && titan->replicas > 1) out += fmt::format(" x {} copies", titan->replicas);
  if (titan && titan->reshard == ReshardPolicy::never) out += ", kept whole";
  const auto& f = p.fsdp;
  if (!f) return out;
  if (f->replicas > 1) out += fmt::format(" x {} copies", f->replicas);
  if (!f->reshard) out += ", kept whole";
  if (f->reshard_to > 0) out += fmt::format(", reshard {}", f->reshard_to);
  if (f->no_sync) out += ", no_sync";
  return out;
}

std::string recompute_of(const Layout& l) {
  const Checkpointing& c = l.job.checkpointing;
  return !c.on ? "none" : c.save.empty() ? "full" : "selective";
}

std::string header(const LayoutPlan& p, const Style& style) {
  const bool text = p.request.job.inputs == InputKind::lm;
  return style.dim(fmt::format("  {:<38} {:>4} {:>3} {:>3} {:>3} {:>5} {:>3} {:>6} {:>6}  {:<10} {:>10} {:>7} {:>10} {:>9} {:>5}\n",
                               "layout", "TP", "PP", "CP", "EP", "DP", "VP", "micro", "accum", "recompute", "device", "", "step",
                               text ? "tokens/s" : "samples/s", "MFU") +
                   fmt::format("  {:>123}\n", "a device"));
}

std::string row(const Layout& l, const LayoutPlan& p) {
  const Degrees d = degrees_of(l.job);
  const auto [micro, times] = micro_batches_of(l.job);
  const std::optional<StepTime>& t = l.need.time;
  const double each =
      t ? (t->tokens_per_second > 0 ? t->tokens_per_second : t->samples_per_second) / static_cast<double>(p.request.world) : 0;
  std::string out =
      fmt::format("  {:<38} {:>4} {:>3} {:>3} {:>3} {:>5} {:>3} {:>6} {:>6}  {:<10} {:>10} {:>7} {:>10} {:>9} {:>5}", title_of(l),
                  count(d.tensor), count(d.pipeline), count(d.context), count(d.expert), l.replicas, count(d.chunks), micro, times,
                  recompute_of(l), to_string(l.need.device.bytes), percent_of(l.need.device.high, p.request.device.capacity->bytes),
                  t ? (t->seconds < 1 ? fmt::format("{:.1f} ms", t->seconds * 1e3) : fmt::format("{:.2f} s", t->seconds)) : "-",
                  t ? fmt::format("{:.4g}", each) : "-", t ? fmt::format("{:.0f} %", 100 * t->utilisation) : "-");
  if (l.global_batch != p.global_batch) out += fmt::format("  = {} samples", l.global_batch);
  return out + "\n";
}

// The fastest of each kind, in the order of their speed.
std::vector<const Layout*> best_of_kinds(const LayoutPlan& p) {
  std::vector<const Layout*> out;
  std::set<std::string> seen;
  for (const Layout& l : p.fitting)
    if (seen.insert(l.kind).second) out.push_back(&l);
  return out;
}

std::string shortage_text(const LayoutPlan& p, const Style& style) {
  std::string out = style.red(fmt::format("Nothing fits: the smallest misses {}.",
                                          to_string(p.smallest->need.device.high - p.request.device.capacity->low))) +
                    "\n" + header(p, style) + row(*p.smallest, p);
  if (p.would_fit.empty()) return out + "No larger cluster or device of the catalogue was found on which it would fit.\n";
  out += "\n" + style.bold("What would fit") + "\n";
  for (const LargerGoal& g : p.would_fit)
    out += fmt::format("  {:<44} {:>11}   {}  {}\n", g.what, to_string(g.layout.need.device.bytes), style.dim(g.flags), title_of(g.layout));
  return out;
}

}  // namespace

Json layout_json(const Layout& l) {
  const Degrees d = degrees_of(l.job);
  Json j{{"kind", l.kind},
         {"changes", Json(l.changes.json())},
         {"flags", l.changes.flags()},
         {"tensor", d.tensor},
         {"pipeline", d.pipeline},
         {"context", d.context},
         {"expert", d.expert},
         {"data", l.replicas},
         {"virtual_stages", d.chunks},
         {"batch", l.job.batch},
         {"accumulation", l.job.accumulation},
         {"micro_batch", micro_batches_of(l.job).first},
         {"global_batch", l.global_batch},
         {"recompute", recompute_of(l)},
         {"allocated_bytes", l.need.allocated.count},
         {"device_peak", range_json(l.need.device)},
         {"verdict", to_string(l.need.verdict)},
         {"margin_bytes", l.margin.count},
         {"all_ranks", l.confirmed}};
  j["time"] = time_json(l.need.time);
  return j;
}

std::string layouts_text(const LayoutPlan& p, const Style& style) {
  const LayoutRequest& r = p.request;
  const bool text = r.job.inputs == InputKind::lm && r.job.seq > 0;
  std::string out = style.bold(fmt::format("{} on {} x {}", r.job.model, r.world, r.device.name)) +
                    fmt::format(", {} samples{} a step, nodes of {}\n", p.global_batch, text ? fmt::format(" of {} tokens", r.job.seq) : "",
                                r.cluster.node);
  out += style.dim(
      fmt::format("  {} layouts are possible, {} had to be executed, {} of those fit\n\n", p.possible, p.executed, p.fitting.size()));
  if (p.fitting.empty()) return out + shortage_text(p, style);
  const std::vector<const Layout*> best = best_of_kinds(p);
  out += style.bold("The fastest of each kind") + "\n" + header(p, style);
  for (const Layout* l : best) out += row(*l, p);
  if (p.fitting.size() > best.size()) {
    out += "\n" + style.bold("All that fit, the fastest first") + "\n" + header(p, style);
    for (size_t i = 0; i < std::min(kShownLayouts, p.fitting.size()); ++i) out += row(p.fitting[i], p);
    if (p.fitting.size() > kShownLayouts) out += style.dim(fmt::format("  and {} more (--json has them all)\n", p.fitting.size() - kShownLayouts));
  }
  out += "\n" + style.bold("How to start them") + "\n";
  for (const Layout* l : best) {
    out += fmt::format("  {:<38} {}\n", title_of(*l), launch_line(*l, r.cluster.node));
    out += style.dim(fmt::format("  {:<38} {}\n", "", estimate_command(*l)));
  }
  for (const auto& [kind, why] : p.left_out) out += style.dim(fmt::format("  {:<38} not tried: {}\n", kind, why));
  return out +
         style.dim(fmt::format(
             "\nTimes are estimates (docs/time.md): kernels by roofline, the bubble by the schedule, traffic by the links of a node of {} "
             "and\n{:.0f} GB/s a device between nodes (--node, --network). --generate torchrun, torchtitan, accelerate, deepspeed or "
             "megatron writes the files.\n",
             r.cluster.node, r.cluster.network / 1e9));
}

Json layouts_json(const LayoutPlan& p) {
  Json j{{"schema", kPlanSchema},
         {"command", "plan"},
         {"kind", "layouts"},
         {"device", p.request.device.name},
         {"world", p.request.world},
         {"node", p.request.cluster.node},
         {"network_bytes_per_second", p.request.cluster.network},
         {"global_batch", p.global_batch},
         {"possible", p.possible},
         {"executed", p.executed},
         {"layouts", Json::array()},
         {"would_fit", Json::array()},
         {"left_out", Json::array()}};
  for (const Layout& l : p.fitting) j["layouts"].push_back(layout_json(l));
  j["smallest"] = p.smallest ? layout_json(*p.smallest) : Json(nullptr);
  for (const LargerGoal& g : p.would_fit)
    j["would_fit"].push_back({{"what", g.what}, {"flags", g.flags}, {"layout", layout_json(g.layout)}});
  for (const auto& [kind, why] : p.left_out) j["left_out"].push_back({{"kind", kind}, {"why", why}});
  return j;
}

}  // namespace plimsoll
