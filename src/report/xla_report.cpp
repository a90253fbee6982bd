#include "report/xla_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "report/fit_report.h"
#include "report/sizes.h"

namespace plimsoll {

namespace {

std::string xla_row(const char* name, int64_t bytes, const std::string& meaning) {
  return fmt::format("  {:<14}  {:>11}   {}\n", name, size_text(bytes), meaning);
}

std::string part(const char* name, int64_t bytes, const std::string& meaning, const Style& style) {
  return fmt::format("    {:<12}  {:>11}   {}\n", name, size_text(bytes), style.dim(meaning));
}

std::string between(int64_t low, int64_t high, const Style& style) {
  return style.dim(fmt::format("{} to {}; ", size_text(low), size_text(high)));
}

nlohmann::ordered_json modelled_json(const Modelled& m) { return {{"bytes", m.usual}, {"low_bytes", m.low}, {"high_bytes", m.high}}; }

std::string shown_text(const XlaEstimate& e, const std::string& device, const JaxSettings& settings, const Style& style) {
  if (e.program.device == DeviceKind::tpu) return overheads_text(e.overheads, style);
  if (!e.shown)
    return fmt::format("  {:<14}  {:>11}   {}\n", "nvidia-smi", "",
                       style.dim(fmt::format("{:g} of the device, taken at the start (--gpu for yours); preallocate: false takes {}",
                                             settings.mem_fraction, to_string(e.pool.bytes))));
  const std::string why = settings.preallocate
                              ? fmt::format("{:g} of the device, taken at the start whatever the program needs", settings.mem_fraction)
                              : std::string("regions that double as the program needs them (preallocate false)");
  return xla_row("nvidia-smi", e.shown->bytes.count,
                 between(e.shown->low.count, e.shown->high.count, style) + why + ", and on " +
                     (device.empty() ? std::string("some NVIDIA card") : device) + ":") +
         overheads_text(e.overheads, style);
}

}  // namespace

std::string xla_text(const XlaEstimate& e, const std::string& device, const JaxSettings& settings, const Style& style) {
  const XlaMemory& p = e.program;
  std::string out;
  out += xla_row("arguments", p.arguments,
                 fmt::format("exact: {} parameters, {} state, {} batch", size_text(p.parameter_bytes), size_text(p.state_bytes),
                             size_text(p.batch_bytes)));
  if (p.device == DeviceKind::tpu && p.argument_padding > 0) out += part("padding", p.argument_padding, "of them, tiles of 8 x 128", style);
  out +=
      xla_row("outputs", p.outputs,
              p.aliased > 0 ? fmt::format("exact: the new state and the loss; {} in the place of donated arguments", size_text(p.aliased))
                            : std::string("exact: the new state and the loss, beside the old state"));
  out += xla_row("temporaries", p.temporaries.usual,
                 between(p.temporaries.low, p.temporaries.high, style) + "modelled: fusion, order and packing");
  out += part("residuals", p.residuals, "of the forward pass, alive where the derivative begins", style);
  out += part("packing", p.packing, "of the one allocation, more than is alive at its peak", style);
  out += fmt::format("  {:<14}  {}   {}\n", "program", style.bold(fmt::format("{:>11}", size_text(p.program.usual))),
                     between(p.program.low, p.program.high, style) + "arguments + outputs - aliased + temporaries: memory_analysis()");
  out += shown_text(e, device, settings, style);
  return out;
}

std::string xla_certainty(const Style& style) {
  return style.dim(
             "How sure: sizes of arguments, outputs, optimizer states and tiles are exact. Which intermediate results XLA fuses away, when "
             "it\n") +
         style.dim(
             "runs what and how it packs the rest is modelled; the interval goes from the most fusion to none across matrix products. "
             "No\n") +
         style.dim("recorded JAX runs were there to check it against (docs/xla.md).\n");
}

nlohmann::ordered_json xla_json(const XlaEstimate& e) {
  const XlaMemory& p = e.program;
  nlohmann::ordered_json j{{"device_kind", to_string(p.device)},
                           {"exact",
                            {{"argument_bytes", p.arguments},
                             {"output_bytes", p.outputs},
                             {"alias_bytes", p.aliased},
                             {"parameter_bytes", p.parameter_bytes},
                             {"state_bytes", p.state_bytes},
                             {"batch_bytes", p.batch_bytes},
                             {"argument_padding_bytes", p.argument_padding}}},
                           {"modelled",
                            {{"temp", modelled_json(p.temporaries)},
                             {"residual_bytes", p.residuals},
                             {"packing_bytes", p.packing},
                             {"ops", p.ops},
                             {"stored_values", p.stored}}},
                           {"program", modelled_json(p.program)},
                           {"needs", range_json(e.needs)},
                           {"pool_without_preallocation", range_json(e.pool)},
                           {"limit_bytes", nullptr},
                           {"shown", nullptr},
                           {"overheads", overheads_json(e.overheads)}};
  if (e.limit) j["limit_bytes"] = e.limit->count;
  if (e.shown) j["shown"] = range_json(*e.shown);
  return j;
}

}  // namespace plimsoll
