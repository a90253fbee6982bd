#include "estimate/xla_memory.h"

#include <fmt/format.h>

#include <algorithm>

#include "allocator/bfc.h"

namespace plimsoll {

namespace {

constexpr int64_t kBoundless = int64_t{1} << 50;

struct BfcRun {
  int64_t in_use = 0, pool = 0;
  bool out_of_memory = false;
};

BfcRun run(const Trace& trace, const BfcOptions& options) {
  BfcAllocator allocator(options);
  std::vector<BfcAllocator::Chunk*> chunks(trace.storages.size(), nullptr);
  BfcRun out;
  for (const Event& e : trace.events) {
    if (e.kind == Event::Kind::alloc && !(chunks[e.storage] = allocator.allocate(trace.storages[e.storage].bytes))) {
      out.out_of_memory = true;
      break;
    }
    if (e.kind == Event::Kind::free) allocator.free(chunks[e.storage]);
  }
  const BfcStats s = allocator.stats();
  out.in_use = s.peak_in_use;
  out.pool = s.peak_pool;
  return out;
}

ByteRange range(const Modelled& m) { return {{m.usual}, {m.low}, {m.high}}; }

// Seen in messages of XLA on TPUs: 528 to 530 MiB on v2 and v3 (flax issue 1733, flowpm issue 27, pytorch/xla issue 1735), 1.25 GiB on
// v4 (EasyDeL issue 166).
Overhead tpu_reserve() {
  constexpr int64_t kMiB = 1 << 20;
  return {"TPU runtime", {{530 * kMiB}, {256 * kMiB}, {1280 * kMiB}}, "\"reserved\" in messages from v2, v3 (0.52 GiB) and v4 (1.25 GiB)"};
}

bool is_tpu(const DeviceSpec& d) { return d.vendor == "Google"; }

bool has_xla_model(const DeviceSpec& d) { return d.vendor == "NVIDIA" || d.vendor == "AMD" || is_tpu(d); }

}  // namespace

DeviceKind device_kind(const Job& job, const std::optional<DeviceSpec>& device) {
  if (!device) return job.program.jax.device_kind.value_or(DeviceKind::gpu);
  const DeviceKind own = is_tpu(*device) ? DeviceKind::tpu : DeviceKind::gpu;
  if (job.program.jax.device_kind && *job.program.jax.device_kind != own)
    throw Error(fmt::format("[job] device_kind {}, but {} is a {}", to_string(*job.program.jax.device_kind), device->name, to_string(own)),
                "leave device_kind out: the device says it");
  return own;
}

std::optional<Capacity> jax_capacity(const TargetDevice& device) {
  std::optional<Capacity> c = device.capacity;
  if (c && (device.spec.id == "tpu-v2" || device.spec.id == "tpu-v3")) {
    for (Bytes* b : {&c->bytes, &c->low, &c->high}) b->count /= 2;
    c->basis = "one of the chip's two cores, which JAX sees as devices; chip: " + c->basis;
  }
  return c;
}

XlaEstimate xla_estimate(const Job& job, XlaMemory program, const std::optional<DeviceSpec>& device) {
  XlaEstimate e;
  e.program = std::move(program);
  e.needs = e.pool = range(e.program.program);
  if (e.program.device == DeviceKind::tpu) {
    e.overheads = {tpu_reserve()};
    return e;
  }
  const Modelled& t = e.program.temporaries;
  const BfcOptions growing{kBoundless, true, 0};
  const BfcRun usual = run(allocator_trace(e.program, t.usual), growing), low = run(allocator_trace(e.program, t.low), growing),
               high = run(allocator_trace(e.program, t.high), growing);
  if (!high.out_of_memory) {  // below 1 PiB
    e.needs = {{usual.in_use}, {std::min(low.in_use, e.program.program.low)}, {high.in_use}};
    e.pool = {{usual.pool}, {std::min(low.pool, usual.pool)}, {std::max(high.pool, usual.pool)}};
  }
  e.overheads = overheads({device, Platform{}.torch, false, job.program.jax.replicas});
  if (device)
    if (const std::optional<Capacity> c = usable_memory(*device))
      e.limit = Bytes{static_cast<int64_t>(static_cast<double>(c->bytes.count) * job.program.jax.mem_fraction)};
  if (job.program.jax.preallocate && !e.limit) return e;
  e.shown = job.program.jax.preallocate ? ByteRange::exact(*e.limit) : e.pool;
  for (const Overhead& o : e.overheads) *e.shown += o.range;
  return e;
}

Fit fit_xla(const Job& job, const XlaMemory& program, const TargetDevice& device) {
  const XlaEstimate e = xla_estimate(job, program, device.spec);
  Fit f;
  f.device = device;
  f.device.capacity = jax_capacity(device);
  f.memory.allocated = e.needs;
  f.memory.reserved = e.pool;
  f.memory.overheads = e.overheads;
  f.memory.device = e.needs;
  for (const Overhead& o : e.overheads) f.memory.device += o.range;
  if (!f.device.capacity || !has_xla_model(device.spec)) {
    f.reason = f.device.capacity ? "how XLA lays out memory there is not modelled" : "how much memory the device has is not established";
    return f;
  }
  const Capacity& c = *f.device.capacity;
  f.margin = c.bytes - device.others - f.memory.device.bytes;
  // On a GPU the allocator stops at its fraction; what is left is enough for the context there.
  const bool gpu = program.device == DeviceKind::gpu;
  Bytes limit = c.bytes - device.others;
  for (const Overhead& o : e.overheads) limit = limit - o.range.bytes;
  if (gpu) limit = std::min(limit, Bytes{static_cast<int64_t>(static_cast<double>(c.bytes.count) * job.program.jax.mem_fraction)});
  const std::string of =
      gpu ? fmt::format("the {} that mem_fraction {:g} gives", to_string(limit), job.program.jax.mem_fraction) : "the device";
  if (e.needs.high <= limit) {
    f.verdict = Verdict::fits;
    f.reason = "even the upper end of the interval fits " + of;
  } else if (e.needs.bytes <= limit &&
             !(gpu &&
               run(allocator_trace(program, program.temporaries.usual), {limit.count, !job.program.jax.preallocate, 0}).out_of_memory)) {
    f.verdict = Verdict::tight;
    f.reason = "the expected need fits " + of + ", the upper end of the interval does not";
  } else {
    f.verdict = Verdict::does_not_fit;
    f.reason = fmt::format("{} are more than {}", to_string(e.needs.bytes), of);
    if (gpu && f.margin.count >= 0) f.reason += "; a larger mem_fraction would do";
  }
  return f;
}

}  // namespace plimsoll
