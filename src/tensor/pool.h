// Memory for many short-lived objects, of one type or of several sizes: freed blocks are handed out again without asking the system.
// Everything made in a pool is destroyed before the pool.
#pragma once

#include <array>
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

class SizedPool {
 public:
  void* take(size_t bytes) {
    const size_t size = size_of_class(bytes);
    if (size >= kClasses) return ::operator new(bytes);
    std::vector<void*>& free = free_[size];
    if (free.empty()) grow(size);
    void* block = free.back();
    free.pop_back();
    return block;
  }
  void give(void* block, size_t bytes) {
    const size_t size = size_of_class(bytes);
    if (size >= kClasses) return ::operator delete(block);
    free_[size].push_back(block);
  }

 private:
  static constexpr size_t kUnit = 64, kClasses = 17, kChunk = 64;  // up to 1 KiB in steps of 64 bytes
  struct alignas(kUnit) Unit {
    std::byte bytes[kUnit];
  };
  static size_t size_of_class(size_t bytes) { return (bytes + kUnit - 1) / kUnit; }
  void grow(size_t size) {
    chunks_.push_back(std::make_unique<Unit[]>(kChunk * size));
    for (size_t i = 0; i < kChunk; ++i) free_[size].push_back(&chunks_.back()[i * size]);
  }

  std::vector<std::unique_ptr<Unit[]>> chunks_;
  std::array<std::vector<void*>, kClasses> free_;
};

}  // namespace plimsoll
