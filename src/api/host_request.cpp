#include "api/host_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "api/request.h"
#include "hardware/capacity.h"
#include "hardware/detect.h"
#include "hardware/lookup.h"
#include "report/host_report.h"
#include "util/parse_bytes.h"

namespace plimsoll {

namespace {

constexpr double kMargin = 0.1;

SystemReserve system_of(const HostRequest& request, const SystemReserve& otherwise) {
  if (request.system.empty()) return otherwise;
  if (request.system == "0") return reserve_of({}, "--os-reserve");
  return reserve_of(parse_bytes(request.system, "--os-reserve"), "--os-reserve");
}

// What is in use now, by everything else that runs here.
SystemReserve in_use(const HostMemory& h) {
  if (h.limit && h.limit_used && h.usable_total() == h.limit) return reserve_of(*h.limit_used, "in use now in this control group");
  if (h.total && h.available) return reserve_of(*h.total - *h.available, "in use now on this machine");
  return default_reserve();
}

HostTarget this_machine(const HostRequest& request) {
  const HostMemory h = detect(Surroundings::here()).host;
  if (!h.usable_total())
    throw Error("[--host-memory] this machine does not say how much memory it has", "give a size, e.g. --host-memory 64GiB",
                ExitCode::no_hardware);
  const bool limited = h.limit && h.usable_total() == h.limit;
  return {h.usable_total(), h.shm, system_of(request, in_use(h)),
          limited ? "this machine, limited by " + h.limit_source : std::string("this machine"), "as mounted here"};
}

HostTarget target_of(const HostRequest& request) {
  HostTarget t;
  if (request.memory == "this") {
    t = this_machine(request);
  } else {
    t.system = system_of(request, default_reserve());
    if (!request.memory.empty()) {
      t.total = parse_bytes(request.memory, "--host-memory");
      t.source = "--host-memory";
      t.shm = Bytes{t.total->count / 2};
      t.shm_source = "half of the RAM, the kernel's default";
    }
  }
  if (!request.shm.empty()) {
    t.shm = parse_bytes(request.shm, "--shm");
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
                "--unified is for one pool of device and host: a size, or a device such as gb10 or m4-max-64gb", ExitCode::usage);
  const auto capacity = usable_memory(spec);
  if (!capacity)
    throw Error(fmt::format("[--unified] how much memory {} has is not established", spec.name), "give a size, e.g. --unified 64GiB");
  UnifiedPool pool;
  pool.device = spec;
  pool.total = capacity->bytes;
  pool.source = fmt::format("{}: {}", spec.name, capacity->basis);
  if (spec.vendor == "Apple") {  // the capacity is what Metal allows, of a pool that is larger
    pool.total = capacity->high;
    pool.source = fmt::format("{}: {:g} GB for CPU and GPU", spec.name, spec.nominal_gb.value_or(0));
    pool.device_limit = capacity->bytes;
    pool.device_limit_source = "Metal's default working set";
  }
  return pool;
}

UnifiedPool pool_of(const HostRequest& request) {
  UnifiedPool pool;
  if (request.unified == "this") {
    pool = this_pool();
  } else if (!request.unified.empty() && (std::isalpha(static_cast<unsigned char>(request.unified[0])) != 0)) {
    pool = catalogue_pool(request.unified);
  } else {
    pool.total = parse_bytes(request.unified, "--unified");
    pool.source = "--unified";
  }
  pool.system = system_of(request, pool.system);
  pool.margin = request.margin.value_or(kMargin);
  return pool;
}

}  // namespace

void HostRequest::check() const {
  if (rule && unified.empty()) throw Error("[--rule-of-thumb] needs --unified", "e.g. --unified 128GiB --rule-of-thumb", ExitCode::usage);
  if (margin && unified.empty()) throw Error("[--margin] needs --unified", "e.g. --unified 128GiB --margin 0.05", ExitCode::usage);
  if (!system.empty() && unified.empty() && !wants_host())
    throw Error("[--os-reserve] needs --host or --unified", "e.g. --host-memory 64GiB --os-reserve 8GiB", ExitCode::usage);
  if (margin && !(*margin >= 0 && *margin <= 0.9))
    throw Error(fmt::format("[--margin] {} is not from 0 to 0.9", *margin), "the part of the pool that stays free, e.g. 0.1");
}

const Keys<HostRequest>& host_keys() {
  using R = HostRequest;
  constexpr const char* kGroup = "Host and unified memory";
  static const Keys<R> kKeys{
      {"host", &R::host, "", "also the host's RAM: process, workers, batches on their way, caches, checkpoints", kGroup},
      {"host_memory", SizeText<R>{&R::memory}, "SIZE|this", "RAM to fit into: a size, or 'this' for this machine (implies --host)", kGroup},
      {"shm", SizeText<R>{&R::shm}, "SIZE", "size of /dev/shm (default: half of the RAM; Docker gives 64MiB)", kGroup},
      {"os_reserve", SizeText<R>{&R::system}, "SIZE", "RAM that the system and others use (default 4 GiB, 1.5 to 8.6)", kGroup},
      {"unified", SizeText<R>{&R::unified}, "SIZE|DEVICE|this",
       "one pool for device and host, step by step: a size, a device (gb10), or 'this'", kGroup},
      {"margin", &R::margin, "PART", "part of the pool that --unified leaves free (default 0.1)", kGroup, {0, 0.9}},
      {"rule_of_thumb", &R::rule, "", "with --unified: a widespread rule of thumb beside the simulation", kGroup}};
  return kKeys;
}

Verdict HostSections::verdict() const {
  Verdict worst = Verdict::unknown;
  const auto take = [&](Verdict v) {
    if (v != Verdict::unknown) worst = worst == Verdict::unknown ? v : std::max(worst, v);
  };
  if (host) take(host->overall());
  if (unified) {
    take(unified->verdict);
    take(unified->load_verdict);
  }
  return worst;
}

HostSections host_sections(const HostRequest& request, const Estimate& e) {
  HostSections out;
  if (request.wants_host()) out.host = host_fit(e.job, e.host_facts, target_of(request));
  if (!request.unified.empty()) {
    out.unified = unified_memory(e.job, e.host_facts, pool_of(request));
    if (request.rule) out.rule = rule_for(e.job, e.host_facts, out.unified->pool.total);
  }
  return out;
}

doc::Blocks host_blocks(const HostSections& s, const Estimate& e) {
  doc::Blocks out;
  if (s.host) doc::append(out, host_blocks(*s.host, e.job.host));
  if (s.unified) doc::append(out, unified_blocks(*s.unified, e.job.batch));
  if (s.rule) doc::append(out, rule_blocks(*s.rule, *s.unified, e.host_facts));
  return out;
}

void add_host_sections(nlohmann::ordered_json& json, const HostSections& s) {
  if (s.host) json["host"] = host_json(*s.host);
  if (s.unified) json["unified"] = unified_json(*s.unified);
  if (s.rule) json["rule_of_thumb"] = rule_json(*s.rule);
}

}  // namespace plimsoll
