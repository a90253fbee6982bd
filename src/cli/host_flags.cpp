#include "cli/host_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "hardware/capacity.h"
#include "hardware/detect.h"
#include "hardware/lookup.h"
#include "report/host_report.h"
#include "util/parse_bytes.h"

namespace plimsoll {

namespace {

SystemReserve system_of(const HostFlags& flags, const SystemReserve& otherwise) {
  if (flags.system.empty()) return otherwise;
  if (flags.system == "0") return reserve_of({}, "--os-reserve");
  return reserve_of(parse_bytes(flags.system, "--os-reserve"), "--os-reserve");
}

// What is in use now, by everything else that runs here.
SystemReserve in_use(const HostMemory& h) {
  if (h.limit && h.limit_used && h.usable_total() == h.limit) return reserve_of(*h.limit_used, "in use now in this control group");
  if (h.total && h.available) return reserve_of(*h.total - *h.available, "in use now on this machine");
  return default_reserve();
}

HostTarget this_machine(const HostFlags& flags) {
  const HostMemory h = detect(Surroundings::here()).host;
  if (!h.usable_total())
    throw Error("[--host-memory] this machine does not say how much memory it has", "give a size, e.g. --host-memory 64GiB",
                ExitCode::no_hardware);
  const bool limited = h.limit && h.usable_total() == h.limit;
  return {h.usable_total(), h.shm, system_of(flags, in_use(h)),
          limited ? "this machine, limited by " + h.limit_source : std::string("this machine"), "as mounted here"};
}

HostTarget target_of(const HostFlags& flags) {
  HostTarget t;
  if (flags.memory == "this") {
    t = this_machine(flags);
  } else {
    t.system = system_of(flags, default_reserve());
    if (!flags.memory.empty()) {
      t.total = parse_bytes(flags.memory, "--host-memory");
      t.source = "--host-memory";
      t.shm = Bytes{t.total->count / 2};
      t.shm_source = "half of the RAM, the kernel's default";
    }
  }
  if (!flags.shm.empty()) {
    t.shm = parse_bytes(flags.shm, "--shm");
    t.shm_source = "--shm";
  }
  return t;
}

UnifiedPool this_pool() {
  const Machine m = detect(Surroundings::here());
  const auto device = std::find_if(m.devices.begin(), m.devices.end(),
                                   [](const DetectedDevice& d) { return d.memory == MemoryKind::unified && d.visible != Visible::no; });
  const auto total = m.host.usable_total();
  if (device == m.devices.end() || !total)
    throw Error("[--unified] no device here shares its memory with the host", "give a size (--unified 128GiB) or a device (--unified gb10)",
                ExitCode::no_hardware);
  UnifiedPool pool;
  pool.total = *total;
  pool.source = "this machine: " + device->name;
  if (device->usable && *device->usable < *total) {
    pool.device_limit = device->usable;
    pool.device_limit_source = device->basis;
  }
  pool.system = in_use(m.host);
  return pool;
}

UnifiedPool catalogue_pool(const std::string& name) {
  const DeviceSpec spec = find_device(name);
  if (spec.memory != MemoryKind::unified)
    throw Error(fmt::format("[--unified] {} has memory of its own ({})", spec.name, to_string(spec.memory)),
                "--unified is for one pool of device and host: a size, or a device such as gb10 or m4-max", ExitCode::usage);
  const auto capacity = usable_memory(spec);
  if (!capacity)
    throw Error(fmt::format("[--unified] how much memory {} has is not established", spec.name), "give a size, e.g. --unified 64GiB");
  UnifiedPool pool;
  pool.device = spec;
  pool.total = capacity->bytes;
  pool.source = fmt::format("{}: {}", spec.name, capacity->basis);
  if (spec.vendor == "Apple") {  // the capacity is what Metal allows, of a pool that is larger
    pool.total = capacity->high;
    pool.source = fmt::format("{}: largest configuration", spec.name);
    pool.device_limit = capacity->bytes;
    pool.device_limit_source = "Metal's default working set";
  }
  return pool;
}

UnifiedPool pool_of(const HostFlags& flags) {
  UnifiedPool pool;
  if (flags.unified == "this") {
    pool = this_pool();
  } else if (!flags.unified.empty() && (std::isalpha(static_cast<unsigned char>(flags.unified[0])) != 0)) {
    pool = catalogue_pool(flags.unified);
  } else {
    pool.total = parse_bytes(flags.unified, "--unified");
    pool.source = "--unified";
  }
  pool.system = system_of(flags, pool.system);
  pool.margin = flags.margin;
  return pool;
}

}  // namespace

void HostFlags::add_to(CLI::App& app) {
  constexpr const char* kGroup = "Host and unified memory";
  app.add_flag("--host", host, "also the host's RAM: process, workers, batches on their way, caches, checkpoints")->group(kGroup);
  app.add_option("--host-memory", memory, "RAM to fit into: a size, or 'this' for this machine (implies --host)")
      ->type_name("SIZE|this")
      ->group(kGroup);
  app.add_option("--shm", shm, "size of /dev/shm (default: half of the RAM; Docker gives 64MiB)")->type_name("SIZE")->group(kGroup);
  app.add_option("--os-reserve", system, "RAM that the system and others use (default 4 GiB, 1.5 to 8.6)")
      ->type_name("SIZE")
      ->group(kGroup);
  app.add_option("--unified", unified, "one pool for device and host, step by step: a size, a device such as gb10, or 'this'")
      ->type_name("SIZE|DEVICE|this")
      ->group(kGroup);
  margin_option = app.add_option("--margin", margin, "part of the pool that --unified leaves free (default 0.1)")
                      ->check(CLI::Range(0.0, 0.9))
                      ->type_name("PART")
                      ->group(kGroup);
  app.add_flag("--rule-of-thumb", rule, "with --unified: a widespread rule of thumb beside the simulation")->group(kGroup);
}

void HostFlags::check() const {
  if (rule && unified.empty()) throw Error("[--rule-of-thumb] needs --unified", "e.g. --unified 128GiB --rule-of-thumb", ExitCode::usage);
  if (margin_option && margin_option->count() > 0 && unified.empty())
    throw Error("[--margin] needs --unified", "e.g. --unified 128GiB --margin 0.05", ExitCode::usage);
  if (!system.empty() && unified.empty() && !wants_host())
    throw Error("[--os-reserve] needs --host or --unified", "e.g. --host-memory 64GiB --os-reserve 8GiB", ExitCode::usage);
}

Verdict add_host_sections(const HostFlags& flags, const Estimate& e, const Style& style, std::string& text, nlohmann::ordered_json& json) {
  Verdict worst = Verdict::unknown;
  const auto take = [&](Verdict v) {
    if (v != Verdict::unknown) worst = worst == Verdict::unknown ? v : std::max(worst, v);
  };
  if (flags.wants_host()) {
    const HostFit fit = host_fit(e.job, e.host_facts, target_of(flags));
    text += "\n" + host_text(fit, e.job.host, style);
    json["host"] = host_json(fit);
    take(fit.overall());
  }
  if (!flags.unified.empty()) {
    const UnifiedEstimate u = unified_memory(e.job, e.host_facts, pool_of(flags));
    text += "\n" + unified_text(u, e.job.batch, style);
    json["unified"] = unified_json(u);
    take(u.verdict);
    take(u.load_verdict);
    if (flags.rule) {
      const RuleOfThumb rule = rule_for(e.job, e.host_facts, u.pool.total);
      text += "\n" + rule_text(rule, u, e.host_facts, style);
      json["rule_of_thumb"] = rule_json(rule);
    }
  }
  return worst;
}

}  // namespace plimsoll
