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

doc::Table layouts_table(const LayoutPlan& p) {
  using doc::Kind;
  doc::Table out{{{"layout"}}};
  for (const char* name : {"TP", "PP", "CP", "EP", "DP", "VP", "micro", "accum"}) out.columns.push_back({name, Kind::number});
  out.columns.push_back({"recompute"});
  out.columns.push_back({"device", Kind::size});
  out.columns.push_back({"", Kind::percent});
  out.columns.push_back({"step", Kind::number});
  out.columns.push_back({p.request.job.inputs == InputKind::lm ? "tokens/s/device" : "samples/s/device", Kind::number});
  out.columns.push_back({"MFU", Kind::number});
  return out;
}

doc::Row layout_row(const Layout& l, const LayoutPlan& p) {
  const Degrees d = degrees_of(l.job);
  const auto [micro, times] = micro_batches_of(l.job);
  const std::optional<StepTime>& t = l.need.time;
  const double each =
      t ? (t->tokens_per_second > 0 ? t->tokens_per_second : t->samples_per_second) / static_cast<double>(p.request.world) : 0;
  doc::Row row{{title_of(l), count(d.tensor), count(d.pipeline), count(d.context), count(d.expert), std::to_string(l.replicas),
                count(d.chunks), std::to_string(micro), std::to_string(times), recompute_of(l), l.need.device.bytes,
                doc::Share{l.need.device.high, p.request.device.capacity->bytes},
                t ? (t->seconds < 1 ? fmt::format("{:.1f} ms", t->seconds * 1e3) : fmt::format("{:.2f} s", t->seconds)) : "-",
                t ? fmt::format("{:.4g}", each) : "-", t ? fmt::format("{:.0f} %", 100 * t->utilisation) : "-"}};
  if (l.global_batch != p.global_batch) row.details.emplace_back(fmt::format("= {} samples", l.global_batch));
  return row;
}

// The fastest of each kind, in the order of their speed.
std::vector<const Layout*> best_of_kinds(const LayoutPlan& p) {
  std::vector<const Layout*> out;
  std::set<std::string> seen;
  for (const Layout& l : p.fitting)
    if (seen.insert(l.kind).second) out.push_back(&l);
  return out;
}

doc::Blocks shortage_blocks(const LayoutPlan& p) {
  doc::Table smallest = layouts_table(p);
  smallest.rows.push_back(layout_row(*p.smallest, p));
  doc::Blocks out{doc::Paragraph{doc::bad(doc::Text("Nothing fits: the smallest layout is ") +
                                          (p.smallest->need.device.high - p.request.device.capacity->low) + " short.")},
                  std::move(smallest)};
  if (p.would_fit.empty()) {
    out.emplace_back(doc::Paragraph{"No larger cluster or device of the catalogue was found on which it would fit."});
    return out;
  }
  doc::Table table{{{"change"}, {"device", doc::Kind::size}, {"flags"}, {"layout"}}};
  for (const LargerGoal& g : p.would_fit)
    table.rows.push_back({{g.what, g.layout.need.device.bytes, doc::code(g.flags), title_of(g.layout)}});
  doc::append(out, {doc::Heading{"What would fit"}, std::move(table)});
  return out;
}

// The command of each kind's fastest, and which kinds were not tried.
doc::Blocks launch_blocks(const LayoutPlan& p, const std::vector<const Layout*>& best) {
  doc::Blocks out{doc::Heading{"How to start them"}};
  for (const Layout* l : best) {
    doc::append(out, {doc::Heading{title_of(*l), {}, 2}, doc::Command{launch_line(*l, p.request.cluster.node)},
                      doc::Command{estimate_command(*l)}});
  }
  if (p.left_out.empty()) return out;
  doc::Facts rest;
  for (const auto& [kind, why] : p.left_out) rest.facts.push_back({kind, doc::dim(why)});
  doc::append(out, {doc::Heading{"Not tried"}, std::move(rest)});
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

doc::Document layouts_document(const LayoutPlan& p) {
  const LayoutRequest& r = p.request;
  const bool text = r.job.inputs == InputKind::lm && r.job.seq > 0;
  doc::Document out{fmt::format("{} on {} x {}", r.job.model, r.world, r.device.name),
                    fmt::format("{} samples{} per step, nodes of {}", p.global_batch, text ? fmt::format(" of {} tokens", r.job.seq) : "",
                                r.cluster.node)};
  out.blocks.emplace_back(doc::Paragraph{
      doc::dim(fmt::format("{} layouts are possible, {} had to be executed, {} of those fit.", p.possible, p.executed, p.fitting.size()))});
  if (p.fitting.empty()) {
    doc::append(out.blocks, shortage_blocks(p));
    return out;
  }
  const std::vector<const Layout*> best = best_of_kinds(p);
  doc::Table fastest = layouts_table(p);
  for (const Layout* l : best) fastest.rows.push_back(layout_row(*l, p));
  doc::append(out.blocks, {doc::Heading{"The fastest of each kind"}, std::move(fastest)});
  if (p.fitting.size() > best.size()) {
    doc::Table all = layouts_table(p);
    for (size_t i = 0; i < std::min(kShownLayouts, p.fitting.size()); ++i) all.rows.push_back(layout_row(p.fitting[i], p));
    doc::append(out.blocks, {doc::Heading{"All that fit, the fastest first"}, std::move(all)});
    if (p.fitting.size() > kShownLayouts)
      out.blocks.emplace_back(doc::List{{doc::dim(fmt::format("and {} more (--json has them all)", p.fitting.size() - kShownLayouts))}});
  }
  doc::append(out.blocks, launch_blocks(p, best));
  out.blocks.emplace_back(
      doc::Paragraph{doc::dim(fmt::format("Times are estimates (docs/time.md): kernels by roofline, the bubble by the schedule, traffic by "
                                          "the links of a node of {} and {:.0f} "
                                          "GB/s per device between nodes (--node, --network). --generate torchrun, torchtitan, accelerate, "
                                          "deepspeed or megatron writes the files.",
                                          r.cluster.node, r.cluster.network / 1e9))});
  return out;
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
