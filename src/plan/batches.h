// How a global batch is made of micro-batches: devices x micro-batch x accumulation.
#pragma once

#include <cstdint>
#include <vector>

namespace plimsoll {

struct Split {
  int64_t batch = 1;  // samples per device and micro-step
  int64_t accumulation = 1;
  bool operator==(const Split&) const = default;
};

int64_t global_batch(const Split& s, int64_t world);

// So many micro-steps of that micro-batch that they come nearest to the global batch; one at the least.
Split nearest_split(int64_t global, int64_t world, int64_t batch);

// Every micro-batch, smallest first, with which `world` devices make the global batch exactly. When it cannot be divided by the
// devices: those that miss it by the least, or by 2 % at most (3 devices make 255 of 256 in 17 steps of 5). Where
// there are more than a dozen, those that differ by a fifth.
std::vector<Split> splits_of(int64_t global, int64_t world);

// Powers of two, for a run whose global batch is free.
std::vector<Split> free_splits(int64_t accumulation);

}  // namespace plimsoll
