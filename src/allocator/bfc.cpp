#include "allocator/bfc.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "util/checked.h"
#include "util/error.h"

namespace plimsoll {

namespace {

constexpr int64_t kMinAllocation = 256;    // kMinAllocationSize
constexpr int64_t kFirstRegion = 2 << 20;  // smallest first region with allow_growth
constexpr int64_t kMostWaste = 128 << 20;  // max_internal_fragmentation_bytes_ when no fraction is set
constexpr int64_t kLargestPool = int64_t{1} << 50;

}  // namespace

BfcAllocator::BfcAllocator(const BfcOptions& options) : options_(options) {
  if (options.limit <= 0 || options.limit > kLargestPool)
    throw Error(fmt::format("[bfc] a limit of {} bytes is not possible", options.limit), "the bytes it may take, between 1 and 2^50");
  if (!(options.fragmentation_fraction >= 0 && options.fragmentation_fraction <= 1))
    throw Error(fmt::format("[bfc] a fragmentation fraction of {} is not possible", options.fragmentation_fraction), "between 0 and 1");
  next_region_ = round_up(options.allow_growth ? std::min(options.limit, kFirstRegion) : options.limit, kMinAllocation);
  most_waste_ = options.fragmentation_fraction > 0
                    ? static_cast<int64_t>(options.fragmentation_fraction * static_cast<double>(options.limit))
                    : kMostWaste;
}

size_t BfcAllocator::bin_of(int64_t size) {
  const auto units = static_cast<uint64_t>(std::max(size, kMinAllocation) / kMinAllocation);
  return std::min<size_t>(kBins - 1, static_cast<size_t>(std::bit_width(units)) - 1);
}

BfcAllocator::Chunk* BfcAllocator::allocate(int64_t bytes) {
  if (bytes > kLargestPool) {
    ++stats_.ooms;
    return nullptr;
  }
  const int64_t rounded = round_up(std::max<int64_t>(bytes, 1), kMinAllocation);
  Chunk* chunk = find(rounded);
  if (!chunk && extend(rounded)) chunk = find(rounded);
  if (!chunk) {
    ++stats_.ooms;
    return nullptr;
  }
  chunk->in_use = true;
  chunk->requested = bytes;
  stats_.requested += bytes;
  stats_.in_use += chunk->size;
  stats_.peak_in_use = std::max(stats_.peak_in_use, stats_.in_use);
  return chunk;
}

// The smallest chunk that is large enough, cut when it is twice the size or would waste too much.
BfcAllocator::Chunk* BfcAllocator::find(int64_t rounded) {
  for (size_t bin = bin_of(rounded); bin < kBins; ++bin) {
    const auto it = bins_[bin].lower_bound({rounded, INT64_MIN, nullptr});
    if (it == bins_[bin].end()) continue;
    Chunk* chunk = std::get<Chunk*>(*it);
    bins_[bin].erase(it);
    if (chunk->size >= rounded * 2 || chunk->size - rounded >= most_waste_) split(chunk, rounded);
    return chunk;
  }
  return nullptr;
}

bool BfcAllocator::extend(int64_t rounded) {
  const int64_t available = (options_.limit - stats_.pool) / kMinAllocation * kMinAllocation;
  if (rounded > available) return false;
  const bool doubled = rounded > next_region_;
  while (rounded > next_region_) next_region_ *= 2;
  const int64_t bytes = std::min(next_region_, available);
  if (!doubled) next_region_ *= 2;
  next_region_ = std::min(next_region_, kLargestPool * 2);  // larger than any limit: only `available` counts from here on
  Chunk* chunk = create();
  // Regions never touch, so chunks of two regions never join.
  chunk->address = stats_.pool + stats_.regions * kMinAllocation;
  chunk->size = bytes;
  ++stats_.regions;
  stats_.pool += bytes;
  stats_.peak_pool = std::max(stats_.peak_pool, stats_.pool);
  add_free(chunk);
  return true;
}

void BfcAllocator::split(Chunk* chunk, int64_t size) {
  Chunk* rest = create();
  rest->address = chunk->address + size;
  rest->size = chunk->size - size;
  rest->prev = chunk;
  rest->next = chunk->next;
  if (rest->next) rest->next->prev = rest;
  chunk->next = rest;
  chunk->size = size;
  add_free(rest);
}

void BfcAllocator::free(Chunk* chunk) {
  chunk->in_use = false;
  stats_.in_use -= chunk->size;
  stats_.requested -= chunk->requested;
  chunk->requested = 0;
  if (chunk->next && !chunk->next->in_use) {
    remove_free(chunk->next);
    join_next(chunk);
  }
  if (chunk->prev && !chunk->prev->in_use) {
    chunk = chunk->prev;
    remove_free(chunk);
    join_next(chunk);
  }
  add_free(chunk);
}

void BfcAllocator::join_next(Chunk* chunk) {
  Chunk* gone = chunk->next;
  chunk->size += gone->size;
  chunk->next = gone->next;
  if (chunk->next) chunk->next->prev = chunk;
  unused_.push_back(gone);
}

BfcAllocator::Chunk* BfcAllocator::create() {
  if (unused_.empty()) return &chunks_.emplace_back();
  Chunk* chunk = unused_.back();
  unused_.pop_back();
  *chunk = Chunk{};
  return chunk;
}

BfcStats BfcAllocator::stats() const {
  BfcStats out = stats_;
  for (const Bin& bin : bins_)
    if (!bin.empty()) out.largest_free = std::max(out.largest_free, std::get<0>(*bin.rbegin()));
  return out;
}

}  // namespace plimsoll
