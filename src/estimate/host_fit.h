// Does the host side fit in a machine's RAM and /dev/shm, and if not, which change helps how much. Each piece of advice is the
// same calculation run again with that change.
#pragma once

#include <optional>

#include "estimate/host_memory.h"
#include "estimate/verdict.h"

namespace plimsoll {

// The machine. Without a total there is no verdict, only the need.
struct HostTarget {
  std::optional<Bytes> total;  // RAM, or the control group's limit when that is less
  std::optional<Bytes> shm;    // size of /dev/shm
  SystemReserve system = default_reserve();
  std::string source;      // "--host-memory", "this machine"
  std::string shm_source;  // "half of the RAM, the kernel's default"
};

// Docker's default size of /dev/shm.
inline constexpr Bytes kDockerShm{64 << 20};

struct HostAdvice {
  std::string change;
  Bytes need;    // the largest of the three peaks afterwards
  Bytes saving;  // in the quantity that was short: RAM, or /dev/shm
  bool shm = false;
  Verdict after = Verdict::unknown;
};

// What the machine has room for beside this run.
struct HostRoom {
  static constexpr int64_t kMostWorkers = 64;  // looked for: more than most machines have cores
  std::optional<int64_t> workers;              // the most with which all fits; none: not known, or not even without workers
  std::optional<Verdict> cache;                // every item in RAM, with the workers of the job; none: how many there are is not said
  Bytes cache_bytes;                           // that the items take
};

struct HostFit {
  HostTarget target;
  HostEstimate need;
  Verdict ram = Verdict::unknown;
  Verdict shm = Verdict::unknown;
  HostRoom room;
  std::vector<HostAdvice> advice;  // for each shortage what makes it fit first, then by saving; empty when all fits

  Verdict overall() const;  // the worse of both; unknown counts only when both are
};

// The best estimate must fit, and for `fits` the high end too.
Verdict judge(const ByteRange& need, std::optional<Bytes> available);

HostFit host_fit(const Job& job, const HostFacts& facts, const HostTarget& target);

}  // namespace plimsoll
