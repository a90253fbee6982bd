// XLA's best-fit-with-coalescing allocator (xla/tsl/framework/bfc_allocator.cc), which JAX and TensorFlow use on GPUs: one
// region taken at the start, or regions that double, cut into chunks of 256 bytes and kept in bins by size.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <set>
#include <tuple>
#include <vector>

namespace plimsoll {

struct BfcOptions {
  int64_t limit = 0;                  // bytes it may take: JAX's default is 75 % of the device (XLA_PYTHON_CLIENT_MEM_FRACTION)
  bool allow_growth = false;          // XLA_PYTHON_CLIENT_PREALLOCATE=false: regions of 2 MiB, 4 MiB, ... instead of all at once
  double fragmentation_fraction = 0;  // largest waste inside a chunk as a share of the limit; 0: 128 MiB
};

struct BfcStats {
  int64_t in_use = 0, requested = 0, pool = 0;  // bytes in chunks in use, asked for, taken from the device
  int64_t peak_in_use = 0, peak_pool = 0;
  int64_t regions = 0, ooms = 0;
  int64_t largest_free = 0;  // filled by stats()
};

class BfcAllocator {
 public:
  struct Chunk {
    int64_t address = 0, size = 0, requested = 0;
    Chunk* prev = nullptr;
    Chunk* next = nullptr;
    bool in_use = false;
  };

  // Throws Error for a limit that is not positive or a share outside [0, 1].
  explicit BfcAllocator(const BfcOptions& options);
  BfcAllocator(const BfcAllocator&) = delete;
  BfcAllocator& operator=(const BfcAllocator&) = delete;

  Chunk* allocate(int64_t bytes);  // bytes > 0; nullptr: out of memory
  void free(Chunk* chunk);
  BfcStats stats() const;
  int64_t in_use() const { return stats_.in_use; }

 private:
  static constexpr size_t kBins = 21;                          // 256 bytes << 0 .. 20; the last holds everything from 256 MiB
  using Bin = std::set<std::tuple<int64_t, int64_t, Chunk*>>;  // size, address

  static size_t bin_of(int64_t size);
  Chunk* find(int64_t rounded);
  bool extend(int64_t rounded);
  void split(Chunk* chunk, int64_t size);
  void join_next(Chunk* chunk);
  void add_free(Chunk* chunk) { bins_[bin_of(chunk->size)].emplace(chunk->size, chunk->address, chunk); }
  void remove_free(Chunk* chunk) { bins_[bin_of(chunk->size)].erase({chunk->size, chunk->address, chunk}); }
  Chunk* create();

  BfcOptions options_;
  int64_t next_region_ = 0;
  int64_t most_waste_ = 0;
  std::array<Bin, kBins> bins_;
  std::deque<Chunk> chunks_;
  std::vector<Chunk*> unused_;
  BfcStats stats_;
};

}  // namespace plimsoll
