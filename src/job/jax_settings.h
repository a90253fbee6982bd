// What JAX leaves to the user where it changes memory: donation, replicas, the kind of device and how its allocator starts.
// Plain data; step/record.h and xla/ act on it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "job/problem.h"

namespace plimsoll {

struct Job;
struct Setting;

enum class Framework : uint8_t { pytorch, jax };
enum class DeviceKind : uint8_t { gpu, tpu };

struct JaxSettings {
  bool donate = false;                    // donate_argnums of the train state: new parameters and states are written over the old ones
  int64_t replicas = 1;                   // devices under pmap, or a mesh with a batch axis alone; each has a full copy
  std::optional<DeviceKind> device_kind;  // none: a TPU when the device that was asked about is one
  double mem_fraction = 0.75;             // XLA_PYTHON_CLIENT_MEM_FRACTION
  bool preallocate = true;                // XLA_PYTHON_CLIENT_PREALLOCATE
};

const char* to_string(Framework f);
const char* to_string(DeviceKind k);
std::string to_string(const JaxSettings& s);  // "donated, 8 replicas, TPU"; never empty

// The entries of job_settings() for them.
std::vector<Setting> jax_setting_entries();

// Settings that the job's framework does not have, with what is possible instead.
void check_framework(const Job& job, Problems& out);

}  // namespace plimsoll
