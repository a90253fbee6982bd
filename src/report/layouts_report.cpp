#include "report/layouts_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "job/instead.h"
#include "report/sizes.h"
#include "util/text.h"

namespace plimsoll {

namespace {

constexpr size_t kShown = 12;

std::string row(const Layout& l, const Style& style) {
  const MegatronSettings& m = *l.job.parallel.megatron;
  const std::string experts = m.expert > 1 ? std::to_string(m.expert) : "-";
  const std::string time = l.time ? fmt::format("{:.2f} s", l.time->seconds) : "-";
  const std::string rate = l.time ? fmt::format("{:.0f}", l.time->tokens_per_second / static_cast<double>(m.world)) : "-";
  return fmt::format("  {:>4} {:>4} {:>4} {:>4} {:>5} {:>5} {:>6} {:>6} {:<10} {:>11} {:>10} {:>9} {:>6}\n", m.tensor, m.pipeline,
                     m.context, experts, m.data(), m.virtual_stages, l.job.batch, l.job.accumulation,
                     l.job.checkpointing.on ? "full" : "none", to_string(l.memory.device.bytes), time, rate,
                     l.time ? fmt::format("{:.0f} %", 100 * l.time->utilisation) : "-");
}

nlohmann::ordered_json layout_json(const Layout& l) {
  nlohmann::ordered_json j{{"megatron", to_json(*l.job.parallel.megatron)},
                           {"batch", l.job.batch},
                           {"accumulation", l.job.accumulation},
                           {"recompute", l.job.checkpointing.on},
                           {"allocated_bytes", l.memory.allocated.bytes.count},
                           {"device_bytes", l.memory.device.bytes.count},
                           {"device_low_bytes", l.memory.device.low.count},
                           {"device_high_bytes", l.memory.device.high.count},
                           {"margin_bytes", l.margin.count}};
  j["seconds"] = l.time ? nlohmann::ordered_json(l.time->seconds) : nlohmann::ordered_json(nullptr);
  j["tokens_per_second"] = l.time ? nlohmann::ordered_json(l.time->tokens_per_second) : nlohmann::ordered_json(nullptr);
  return j;
}

}  // namespace

std::string layouts_text(const LayoutPlan& p, const Style& style) {
  const LayoutRequest& r = p.request;
  std::string out = fmt::format("{} on {} x {}, {} samples of {} tokens a step\n", style.bold(r.job.model), r.world, r.device.name,
                                p.global_batch, r.job.seq);
  out += style.dim(
      fmt::format("  {} layouts are possible, {} had to be executed, {} of those fit\n\n", p.possible, p.executed, p.fitting.size()));
  if (p.fitting.empty()) {
    if (!p.smallest) return out + "Nothing fits: weights, gradients and states alone are larger than the devices.\n";
    out += fmt::format("Nothing fits. The smallest, {}, misses {}:\n", to_string(*p.smallest->job.parallel.megatron),
                       to_string(Bytes{-p.smallest->margin.count}));
  }
  out += style.dim(fmt::format("  {:>4} {:>4} {:>4} {:>4} {:>5} {:>5} {:>6} {:>6} {:<10} {:>11} {:>10} {:>9} {:>6}\n", "TP", "PP", "CP",
                               "EP", "DP", "VP", "micro", "accum", "recompute", "device", "step", "tokens/s", "MFU"));
  out += style.dim(fmt::format("  {:>90}\n", "a GPU"));
  if (p.fitting.empty()) return out + row(*p.smallest, style);
  for (size_t i = 0; i < std::min(kShown, p.fitting.size()); ++i) out += row(p.fitting[i], style);
  if (p.fitting.size() > kShown) out += style.dim(fmt::format("  and {} more (--json has them all)\n", p.fitting.size() - kShown));
  out += "\nThe fastest:\n  " + instead_of("megatron", p.fitting.front().job) + "\n";
  return out + style.dim(
                   "Times are estimates (docs/time.md): kernels by roofline, traffic by links, the bubble by the schedule. Memory is that "
                   "of the\nlargest of the first and the last stage.\n");
}

nlohmann::ordered_json layouts_json(const LayoutPlan& p) {
  nlohmann::ordered_json j{{"schema", 1},
                           {"device", p.request.device.name},
                           {"world", p.request.world},
                           {"global_batch", p.global_batch},
                           {"possible", p.possible},
                           {"executed", p.executed},
                           {"layouts", nlohmann::ordered_json::array()}};
  for (const Layout& l : p.fitting) j["layouts"].push_back(layout_json(l));
  j["smallest"] = p.smallest ? layout_json(*p.smallest) : nlohmann::ordered_json(nullptr);
  return j;
}

}  // namespace plimsoll
