// The counters of torch.cuda.memory_stats(), as a program saved them: one JSON object with keys like "allocated_bytes.all.peak".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace plimsoll {

struct MemoryStats {
  int64_t allocated = 0, allocated_peak = 0, reserved = 0, reserved_peak = 0;
  std::optional<int64_t> requested, requested_peak;  // since 2.0
  std::optional<int64_t> active, active_peak, inactive_split;
  std::optional<int64_t> segments, retries, ooms, device_allocs, device_frees;
};

// Whether the text is such an object as a whole; a log with such words in it is not.
bool looks_like_memory_stats(std::string_view text);
// The object itself, or one that holds it under any name ({"rank0": {...}}); the first one then. Throws an Error.
MemoryStats read_memory_stats(std::string_view text, const std::string& name);

}  // namespace plimsoll
