// A compiled train step on a device: what XLA's allocator takes for it, and what nvidia-smi shows, which is another number
// because JAX takes three quarters of a GPU at its start.
#pragma once

#include <optional>
#include <vector>

#include "estimate/fit.h"
#include "estimate/overheads.h"
#include "xla/compile.h"

namespace plimsoll {

struct XlaEstimate {
  XlaMemory program;
  ByteRange needs;                 // arguments + outputs - aliased + temporaries, in the allocator's chunks
  ByteRange pool;                  // regions that XLA_PYTHON_CLIENT_PREALLOCATE=false would take; on a TPU the same as needs
  std::optional<Bytes> limit;      // mem_fraction of the device; none: no device was named, or a TPU
  std::optional<ByteRange> shown;  // by nvidia-smi; none on a TPU, and when it depends on a device that was not named
  std::vector<Overhead> overheads;
};

// The device's kind unless the job says otherwise; an Error when the two contradict each other.
DeviceKind device_kind(const Job& job, const std::optional<DeviceSpec>& device);

// What a framework gets of a device under JAX, which sees the two cores of an early TPU as two devices.
std::optional<Capacity> jax_capacity(const TargetDevice& device);

XlaEstimate xla_estimate(const Job& job, XlaMemory program, const std::optional<DeviceSpec>& device);

// Whether the program fits: its range against what the allocator may take.
Fit fit_xla(const Job& job, const XlaMemory& program, const TargetDevice& device);

}  // namespace plimsoll
