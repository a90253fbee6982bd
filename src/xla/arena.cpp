#include "xla/arena.h"

#include <algorithm>
#include <numeric>

namespace plimsoll {

namespace {

// What was placed: where it lies, up to where the alignment lets the next begin, and while which ops.
struct Placed {
  int64_t offset, edge;
  OpId begin, end;
};

// The smallest gap of at least `bytes` between those that live beside `b`; else behind the last. They are in the order of their offsets.
int64_t best_fit(const std::vector<Placed>& placed, const XlaBuffer& b) {
  int64_t best = -1, smallest = INT64_MAX, edge = 0;
  for (const Placed& p : placed) {
    if (p.begin > b.end || b.begin > p.end) continue;
    const int64_t gap = p.offset - edge;
    if (gap >= b.bytes && gap < smallest) {
      best = edge;
      smallest = gap;
    }
    edge = std::max(edge, p.edge);
  }
  return best >= 0 ? best : edge;
}

int64_t aligned(int64_t bytes, int64_t alignment) { return checked_mul(checked_add(bytes, alignment - 1) / alignment, alignment); }

}  // namespace

Arena pack(const std::vector<XlaBuffer>& buffers, int64_t alignment) {
  std::vector<size_t> order(buffers.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    if (buffers[a].bytes != buffers[b].bytes) return buffers[a].bytes > buffers[b].bytes;
    return buffers[a].end - buffers[a].begin > buffers[b].end - buffers[b].begin;
  });
  Arena arena;
  arena.offsets.resize(buffers.size());
  std::vector<Placed> placed;
  placed.reserve(buffers.size());
  for (const size_t i : order) {
    const XlaBuffer& b = buffers[i];
    const int64_t offset = best_fit(placed, b), end = checked_add(offset, b.bytes);
    arena.offsets[i] = offset;
    arena.bytes = std::max(arena.bytes, end);
    const auto place = std::upper_bound(placed.begin(), placed.end(), offset, [](int64_t at, const Placed& p) { return at < p.offset; });
    placed.insert(place, {offset, aligned(end, alignment), b.begin, b.end});
  }
  return arena;
}

}  // namespace plimsoll
