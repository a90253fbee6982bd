// The pieces the caching allocator moves about: segments taken from the device, the blocks they are cut into, and the two
// pools (small and large) with their free sets. No policy here; that is in cuda_caching.h.
#pragma once

#include <cstdint>
#include <deque>
#include <set>
#include <vector>

namespace plimsoll {

constexpr int64_t kSmallSize = 1 << 20;     // largest size of the small pool; also the largest rest that is not split off
constexpr int64_t kSmallSegment = 2 << 20;  // what the small pool takes from the device

struct CudaBlock;
struct BlockPool;

// A cudaMalloc'ed segment, or a range of virtual addresses that pages are mapped into.
struct CudaSegment {
  int64_t id = 0;       // order of creation
  int64_t ordinal = 0;  // 1, 2, ... in the order in which segments first got memory; 0: none yet
  int64_t base = 0;
  int64_t size = 0;
  int64_t page = 0;  // expandable: bytes mapped at a time; 0: a plain segment
  CudaBlock* first = nullptr;
};

struct CudaBlock {
  int64_t address = 0;
  int64_t size = 0;
  int64_t requested = 0;
  int32_t stream = 0;
  uint32_t serial = 0;  // unique among living blocks: the last tie-break, so that odd addresses cannot confuse a set
  CudaBlock* prev = nullptr;
  CudaBlock* next = nullptr;
  CudaSegment* segment = nullptr;
  BlockPool* pool = nullptr;
  bool allocated = false;
  bool mapped = true;    // false: address space without memory (expandable only)
  int32_t events = 0;    // outstanding events of other streams
  int64_t freed_at = 0;  // the pool's search count when it became free: its age for garbage collection
  std::vector<int32_t> stream_uses;

  bool is_split() const { return prev || next; }
  bool is_expandable() const { return segment->page > 0; }
  bool is_free() const { return !allocated && events == 0 && stream_uses.empty(); }
  int64_t offset() const { return address - segment->base; }
};

// Sorted copies of what orders a block, so that a search touches no block.
struct BlockKey {
  int32_t stream;
  uint32_t serial;
  int64_t size;  // 0 in the set of unmapped blocks, which is ordered by address
  int64_t address;
  CudaBlock* block;

  friend bool operator<(const BlockKey& a, const BlockKey& b) {
    if (a.stream != b.stream) return a.stream < b.stream;
    if (a.size != b.size) return a.size < b.size;
    if (a.address != b.address) return a.address < b.address;
    return a.serial < b.serial;
  }
};

// Ordered by (stream, size, address); nodes are reused, because every operation removes and adds some.
class BlockSet {
 public:
  using Set = std::set<BlockKey>;
  using iterator = Set::iterator;

  explicit BlockSet(bool by_size) : by_size_(by_size) {}

  void insert(CudaBlock* block);
  void erase(CudaBlock* block);
  void erase(iterator it);
  iterator lower_bound(int32_t stream, int64_t size) { return set_.lower_bound({stream, 0, by_size_ ? size : 0, INT64_MIN, nullptr}); }
  iterator begin() { return set_.begin(); }
  iterator end() { return set_.end(); }

 private:
  BlockKey key(CudaBlock* block) const { return {block->stream, block->serial, by_size_ ? block->size : 0, block->address, block}; }

  bool by_size_;
  Set set_;
  std::vector<Set::node_type> spare_;
};

struct BlockPool {
  explicit BlockPool(bool is_small) : small(is_small) {}
  const bool small;
  int64_t searches = 0;
  BlockSet free{true};
  BlockSet unmapped{false};

  void add_free(CudaBlock* block) {
    block->freed_at = searches;
    free.insert(block);
  }
};

// Owns blocks; a destroyed one is used again.
class BlockStore {
 public:
  CudaBlock* create();
  void destroy(CudaBlock* block) { unused_.push_back(block); }

 private:
  std::deque<CudaBlock> blocks_;
  std::vector<CudaBlock*> unused_;
};

}  // namespace plimsoll
