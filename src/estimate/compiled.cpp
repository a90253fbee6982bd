#include "estimate/compiled.h"

#include <algorithm>

namespace plimsoll {

namespace {

ByteRange between(const ByteRange& a, const ByteRange& b) {
  return {{a.bytes.count / 2 + b.bytes.count / 2}, std::min(a.low, b.low), std::max(a.high, b.high)};
}

}  // namespace

std::optional<Job> fused_job(const Job& job) {
  if (!job.compile || job.checkpointing.on) return std::nullopt;
  Job fused = job;
  fused.compile = false;
  fused.checkpointing.on = true;
  fused.checkpointing.save = matmul_ops();
  return fused;
}

DeviceMemory compiled_memory(const Job& job, const DeviceMemory& eager, const std::function<DeviceMemory(const Job&)>& fused) {
  const std::optional<Job> lower = fused_job(job);
  if (!lower) return eager;
  DeviceMemory least;
  if (const std::optional<Problem> problem = problem_in([&] { least = fused(*lower); }))
    throw Error("[job] compile is not modelled for " + job.model + ": " + problem->what,
                "leave compile out: the eager run is an upper end");
  return between(least, eager);
}

DeviceMemory between(const DeviceMemory& fused, const DeviceMemory& eager) {
  DeviceMemory m = eager;
  m.allocated = between(fused.allocated, eager.allocated);
  m.reserved = between(fused.reserved, eager.reserved);
  m.device = between(fused.device, eager.device);
  m.resting = between(fused.resting, eager.resting);
  return m;
}

}  // namespace plimsoll
