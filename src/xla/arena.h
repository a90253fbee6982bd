// Where a program's temporaries lie: XLA packs them into one allocation by their live ranges, largest first, each into the
// smallest gap that it fits (heap_simulator.cc, GlobalDecreasingSizeBestFitHeap).
#pragma once

#include "xla/liveness.h"

namespace plimsoll {

struct Arena {
  int64_t bytes = 0;             // of the one allocation
  std::vector<int64_t> offsets;  // by buffer
};

// Offsets are multiples of `alignment`.
Arena pack(const std::vector<XlaBuffer>& buffers, int64_t alignment);

}  // namespace plimsoll
