// What one look at a run found: its processes, the devices, the host, its log. Plain data; watcher.h collects it, judge.h says what it
// means.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "util/bytes.h"

namespace plimsoll {

enum class Role : uint8_t {
  main,    // the process that was named
  rank,    // another program that it started: one of several processes that train
  worker,  // a copy of one of these: a DataLoader's worker
  other,
};
const char* to_string(Role role);

// Sizes are nothing where the kernel does not tell them to this user.
struct ProcessSample {
  int64_t pid = 0, parent = 0;
  int64_t started = 0;  // clock ticks since boot: with it, a pid that is used again is another process
  Role role = Role::other;
  std::string name;
  char state = '?';             // as in /proc/<pid>/stat
  double cpu = 0, blocked = 0;  // cores in use; share of the time spent waiting for a disk
  std::optional<Bytes> rss, anonymous, shmem, pss, shared, own, swap, pinned;
  std::optional<Bytes> device;  // on all devices together
  double queued = 0;            // share of the time in which its first thread could have run, but no core was free

  double load() const { return cpu + blocked + queued; }
  // What disappears with it: its share where that can be read, else what is not a file's.
  std::optional<Bytes> weight() const { return pss ? pss : anonymous ? anonymous : rss; }
};

struct OtherProcess {
  int64_t pid = 0;
  std::string name;
  std::optional<Bytes> used;
};

struct DeviceSample {
  int index = 0;
  std::string name;
  bool unified = false;  // one pool with the host
  bool answers = true;   // false: the driver no longer tells about it
  std::optional<Bytes> total, used, ours;
  std::optional<double> busy;  // 0 to 1
  std::vector<OtherProcess> others;
};

struct HostSample {
  std::optional<Bytes> total, available, swap_total, swap_used, shm_total, shm_used;
  std::optional<Bytes> limit, limit_used;  // the tightest control group; used: without page cache, which the kernel takes back
  std::string limit_source;
  std::optional<double> pressure_some, pressure_full;  // share of the last 10 s in which some, or all, waited for memory
  double swap_in = 0, swap_out = 0;                    // bytes a second
  double refaults = 0;                                 // bytes a second that were dropped from memory and read again
  int64_t oom_kills = 0;                               // since boot
  std::optional<double> idle_cpus;
  int64_t cpus = 0;

  // What there is to run out of, and what is left of it.
  std::optional<Bytes> capacity() const;
  std::optional<Bytes> left() const;
};

struct StepSample {
  int64_t step = 0;  // as the log counts
  std::optional<int64_t> total;
  int64_t seen = 0;            // since the watch began
  std::optional<double> rate;  // steps a second
  int64_t rounds = 0;          // how often the count began anew: epochs
};

struct Sample {
  double time = 0;  // seconds since 1970
  std::vector<ProcessSample> processes;
  std::vector<DeviceSample> devices;
  HostSample host;
  std::optional<StepSample> steps;
  std::vector<std::string> events;  // what happened since the last look: "worker 77 is gone"
};

nlohmann::ordered_json sample_json(const Sample& sample);
// Throws an Error that names what is missing or of another type.
Sample sample_of(const nlohmann::json& json);

}  // namespace plimsoll
