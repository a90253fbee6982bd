#include "allocator/cuda_block.h"

namespace plimsoll {

void BlockSet::insert(CudaBlock* block) {
  if (spare_.empty()) {
    set_.insert(key(block));
    return;
  }
  Set::node_type node = std::move(spare_.back());
  spare_.pop_back();
  node.value() = key(block);
  set_.insert(std::move(node));
}

void BlockSet::erase(CudaBlock* block) {
  const iterator it = set_.find(key(block));
  if (it != set_.end()) erase(it);
}

void BlockSet::erase(iterator it) { spare_.push_back(set_.extract(it)); }

CudaBlock* BlockStore::create() {
  if (unused_.empty()) {
    CudaBlock& block = blocks_.emplace_back();
    block.serial = static_cast<uint32_t>(blocks_.size());
    return &block;
  }
  CudaBlock* block = unused_.back();
  unused_.pop_back();
  const uint32_t serial = block->serial;
  std::vector<int32_t> uses = std::move(block->stream_uses);
  uses.clear();
  *block = CudaBlock{};
  block->serial = serial;
  block->stream_uses = std::move(uses);
  return block;
}

}  // namespace plimsoll
