#include "xla/arena.h"

#include <algorithm>
#include <numeric>

namespace plimsoll {

namespace {

struct Span {
  int64_t begin, end;
};

// The smallest gap of at least `bytes` between the spans, which are sorted by their beginning; else behind the last.
int64_t best_fit(const std::vector<Span>& spans, int64_t bytes) {
  int64_t best = -1, smallest = INT64_MAX, edge = 0;
  for (const Span& s : spans) {
    const int64_t gap = s.begin - edge;
    if (gap >= bytes && gap < smallest) {
      best = edge;
      smallest = gap;
    }
    edge = std::max(edge, s.end);
  }
  return best >= 0 ? best : edge;
}

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
  std::vector<size_t> placed;
  std::vector<Span> beside;
  for (const size_t i : order) {
    const XlaBuffer& b = buffers[i];
    beside.clear();
    for (const size_t j : placed) {
      const XlaBuffer& other = buffers[j];
      if (other.begin <= b.end && b.begin <= other.end) beside.push_back({arena.offsets[j], checked_add(arena.offsets[j], other.bytes)});
    }
    for (Span& s : beside) s.end = checked_mul((s.end + alignment - 1) / alignment, alignment);
    std::sort(beside.begin(), beside.end(), [](const Span& x, const Span& y) { return x.begin < y.begin; });
    arena.offsets[i] = best_fit(beside, b.bytes);
    arena.bytes = std::max(arena.bytes, checked_add(arena.offsets[i], b.bytes));
    placed.push_back(i);
  }
  return arena;
}

}  // namespace plimsoll
