#include "report/xla_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "report/counters.h"
#include "report/fit_report.h"

namespace plimsoll {

namespace {

doc::Text between(int64_t low, int64_t high) { return doc::dim(doc::interval(Bytes{low}, Bytes{high}) + "; "); }

nlohmann::ordered_json modelled_json(const Modelled& m) { return {{"bytes", m.usual}, {"low_bytes", m.low}, {"high_bytes", m.high}}; }

void add_shown(doc::Facts& facts, const XlaEstimate& e, const std::string& device, const std::string& vendor, const JaxSettings& settings) {
  if (e.program.device == DeviceKind::tpu) return add_overheads(facts, e.overheads);
  const char* tool = counters_of(vendor, false).device;
  if (!e.shown) {
    facts.facts.push_back({tool, doc::dim(fmt::format("{:g} of the device, taken at the start (use --gpu for yours); "
                                                      "preallocate: false takes ",
                                                      settings.mem_fraction) +
                                          doc::Text(e.pool.bytes))});
    return;
  }
  const std::string why = settings.preallocate
                              ? fmt::format("{:g} of the device, taken at the start whatever the program needs", settings.mem_fraction)
                              : std::string("regions that double as the program needs them (preallocate false)");
  facts.facts.push_back({tool, e.shown->bytes,
                         between(e.shown->low.count, e.shown->high.count) + why + " + overhead " +
                             (device.empty() ? std::string("of a typical NVIDIA card") : "on " + device) + ":"});
  add_overheads(facts, e.overheads);
}

}  // namespace

void add_program(doc::Facts& facts, const XlaEstimate& e, const std::string& device, const std::string& vendor,
                 const JaxSettings& settings) {
  const XlaMemory& p = e.program;
  const auto add = [&](const char* name, doc::Text size, const doc::Text& meaning) {
    facts.facts.push_back({name, std::move(size), meaning});
  };
  const auto part = [&](const char* name, int64_t bytes, const char* meaning) {
    facts.facts.push_back({name, Bytes{bytes}, doc::dim(meaning), 1});
  };
  add("arguments", Bytes{p.arguments},
      doc::Text("exact: ") + Bytes{p.parameter_bytes} + " parameters, " + Bytes{p.state_bytes} + " state, " + Bytes{p.batch_bytes} +
          " batch");
  if (p.device == DeviceKind::tpu && p.argument_padding > 0) part("padding", p.argument_padding, "of them, tiles of 8 x 128");
  add("outputs", Bytes{p.outputs},
      p.aliased > 0 ? doc::Text("exact: the new state and the loss; ") + Bytes{p.aliased} + " reuse donated arguments"
                    : doc::Text("exact: the new state and the loss, beside the old state"));
  add("temporaries", Bytes{p.temporaries.usual}, between(p.temporaries.low, p.temporaries.high) + "modelled: fusion, order and packing");
  part("residuals", p.residuals, "of the forward pass, alive where the derivative begins");
  part("packing", p.packing, "of the one allocation, more than is alive at its peak");
  add("program", doc::bold(Bytes{p.program.usual}),
      between(p.program.low, p.program.high) + "arguments + outputs - aliased + temporaries: memory_analysis()");
  add_shown(facts, e, device, vendor, settings);
}

std::string xla_certainty() {
  return "How sure: sizes of arguments, outputs, optimizer states and tiles are exact. Which intermediate results XLA fuses away, when it "
         "runs what and how it packs the rest is modelled; the interval goes from the most fusion to none across matrix products. No "
         "recorded "
         "JAX runs were available to check it against (docs/xla.md).";
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
