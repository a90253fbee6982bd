#include "plan/batches.h"

#include <algorithm>
#include <cstdlib>

#include "util/bytes.h"

namespace plimsoll {

namespace {

constexpr int64_t kLargestFreeBatch = 1 << 16;
// Beyond so many samples a device every micro-batch is not worth a look of its own.
constexpr int64_t kMostListed = 4096;
constexpr size_t kMostSplits = 12;

std::vector<Split> exact(int64_t samples) {
  std::vector<Split> out;
  for (int64_t b = 1; b * b <= samples; ++b) {
    if (samples % b != 0) continue;
    out.push_back({b, samples / b});
    if (b != samples / b) out.push_back({samples / b, b});
  }
  std::sort(out.begin(), out.end(), [](const Split& a, const Split& b) { return a.batch < b.batch; });
  return out;
}

// Of many micro-batches those that differ by a fifth or more, with the smallest and the largest.
std::vector<Split> thinned(const std::vector<Split>& all) {
  if (all.size() <= kMostSplits) return all;
  std::vector<Split> out;
  for (const Split& s : all)
    if (out.empty() || s.batch * 5 >= out.back().batch * 6) out.push_back(s);
  if (out.back() != all.back()) out.back() = all.back();
  return out;
}

}  // namespace

int64_t global_batch(const Split& s, int64_t world) { return checked_mul(checked_mul(s.batch, s.accumulation), world); }

Split nearest_split(int64_t global, int64_t world, int64_t batch) {
  const int64_t step = checked_mul(world, batch);
  return {batch, std::max<int64_t>(1, (global + step / 2) / step)};
}

std::vector<Split> splits_of(int64_t global, int64_t world) {
  if (global % world == 0) return thinned(exact(global / world));
  std::vector<Split> all;
  int64_t least = global;
  const auto miss = [&](const Split& s) { return std::abs(global_batch(s, world) - global); };
  const int64_t most = std::min(global / world + 1, kMostListed);
  for (int64_t b = 1; b <= most; ++b) {
    all.push_back(nearest_split(global, world, b));
    least = std::min(least, miss(all.back()));
  }
  const int64_t allowed = std::max(least, global / 50);
  std::erase_if(all, [&](const Split& s) { return miss(s) > allowed; });
  return thinned(all);
}

std::vector<Split> free_splits(int64_t accumulation) {
  std::vector<Split> out;
  for (int64_t b = 1; b <= kLargestFreeBatch; b *= 2) out.push_back({b, accumulation});
  return out;
}

}  // namespace plimsoll
