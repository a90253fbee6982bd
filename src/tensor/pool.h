// Memory for many short-lived objects of one type: freed blocks are handed out again without asking the system. Everything
// made in a pool is destroyed before the pool.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace plimsoll {

template <class T>
class Pool {
 public:
  template <class... Args>
  T* make(Args&&... args) {
    if (free_.empty()) grow();
    void* block = free_.back();
    free_.pop_back();
    return new (block) T(std::forward<Args>(args)...);
  }
  void destroy(T* object) {
    object->~T();
    free_.push_back(object);
  }

 private:
  static constexpr size_t kChunk = 256;
  struct alignas(T) Block {
    std::byte bytes[sizeof(T)];
  };
  void grow() {
    chunks_.push_back(std::make_unique<Block[]>(kChunk));
    for (size_t i = 0; i < kChunk; ++i) free_.push_back(&chunks_.back()[i]);
  }

  std::vector<std::unique_ptr<Block[]>> chunks_;
  std::vector<void*> free_;
};

}  // namespace plimsoll
