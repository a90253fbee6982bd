// A list whose first elements are in place: most ops have few inputs and one output, and asking the system for room costs more than they
// do.
#pragma once

#include <array>
#include <cstddef>
#include <type_traits>
#include <utility>
#include <vector>

namespace plimsoll {

template <class T, size_t N>
class InlineVector {
 public:
  InlineVector() = default;
  InlineVector(InlineVector&& o) noexcept : few_(std::move(o.few_)), many_(std::move(o.many_)), size_(std::exchange(o.size_, 0)) {}
  InlineVector& operator=(InlineVector&& o) noexcept {
    few_ = std::move(o.few_);
    many_ = std::move(o.many_);
    size_ = std::exchange(o.size_, 0);
    return *this;
  }
  // The first goes first, as in std::vector: what it holds may be seen to go.
  ~InlineVector() {
    if constexpr (!std::is_trivially_destructible_v<T>)
      for (T& t : few_) t = T();
  }

  size_t size() const { return size_; }
  T* begin() { return size_ <= N ? few_.data() : many_.data(); }
  T* end() { return begin() + size_; }
  const T* begin() const { return size_ <= N ? few_.data() : many_.data(); }
  const T* end() const { return begin() + size_; }
  T& operator[](size_t i) { return begin()[i]; }
  const T& operator[](size_t i) const { return begin()[i]; }

  void push_back(T value) {
    if (size_ < N) {
      few_[size_++] = std::move(value);
      return;
    }
    if (size_ == N)
      for (T& t : few_) many_.push_back(std::move(t));
    many_.push_back(std::move(value));
    ++size_;
  }

 private:
  std::array<T, N> few_{};
  std::vector<T> many_;  // all of them, when they are more than fit in place
  size_t size_ = 0;
};

}  // namespace plimsoll
