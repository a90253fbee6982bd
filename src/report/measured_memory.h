// What a real run was measured to need, to stand beside its prediction: counters, and for a recorded run its memory over time.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "allocator/memory_curve.h"

namespace plimsoll {

struct MeasuredMemory {
  std::string source;                                    // the file, or "as given"
  std::vector<std::pair<std::string, int64_t>> numbers;  // by the names of the page's own: allocated, reserved, device
  std::vector<int64_t> slices;                           // slices_of() its curve; empty: no curve is known
};

// What is alive at most in each of so many equal parts of the changes, without what lies before a recording.
std::vector<int64_t> slices_of(const MemoryCurve& curve);

nlohmann::ordered_json measured_json(const MeasuredMemory& measured, const MemoryCurve& predicted);

}  // namespace plimsoll
