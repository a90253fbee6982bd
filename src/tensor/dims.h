// Sizes or strides of a tensor: up to eight numbers in place, and the arithmetic on shapes that PyTorch does.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "util/checked.h"

namespace plimsoll {

class Dims {
 public:
  static constexpr int kMax = 8;

  Dims() = default;
  Dims(std::initializer_list<int64_t> values) {
    for (int64_t v : values) push_back(v);
  }
  static Dims filled(int n, int64_t value) {
    Dims d;
    for (int i = 0; i < n; ++i) d.push_back(value);
    return d;
  }

  int size() const { return size_; }
  bool empty() const { return size_ == 0; }
  int64_t operator[](int i) const { return values_[index(i)]; }  // negative counts from the end, as in Python
  int64_t& operator[](int i) { return values_[index(i)]; }
  const int64_t* begin() const { return values_; }
  const int64_t* end() const { return values_ + size_; }
  void push_back(int64_t v) {
    if (size_ == kMax) throw Error("[shape] a tensor of more than eight dimensions", "reshape it in fewer dimensions");
    values_[size_++] = v;
  }
  void insert(int at, int64_t v) {
    push_back(v);
    std::rotate(values_ + at, values_ + size_ - 1, values_ + size_);
  }
  void erase(int at) {
    std::copy(values_ + at + 1, values_ + size_, values_ + at);
    --size_;
  }
  friend bool operator==(const Dims& a, const Dims& b) { return std::equal(a.begin(), a.end(), b.begin(), b.end()); }

 private:
  int index(int i) const {
    if (i < 0) i += size_;
    assert(i >= 0 && i < size_);
    return i;
  }
  int64_t values_[kMax] = {};
  int size_ = 0;
};

std::string to_string(const Dims& dims);  // "(2, 64, 128)"

int64_t numel(const Dims& sizes);  // checked product; negative sizes are an Error
Dims contiguous_strides(const Dims& sizes);
Dims channels_last_strides(const Dims& sizes);  // (N, C, H, W) with C innermost
bool is_contiguous(const Dims& sizes, const Dims& strides);
bool is_channels_last(const Dims& sizes, const Dims& strides);
bool is_non_overlapping_and_dense(const Dims& sizes, const Dims& strides);
Dims broadcast(const Dims& a, const Dims& b);  // throws when the shapes do not broadcast
// Strides of a dense tensor whose dimensions are ordered by `compare(d0, d1)`: negative keeps d0 inside d1, positive swaps
// them, 0 is undecided (TensorIterator's stable insertion sort).
template <class Compare>
Dims ordered_strides(const Dims& sizes, Compare compare) {
  const int n = sizes.size();
  int perm[Dims::kMax];
  for (int i = 0; i < n; ++i) perm[i] = n - 1 - i;
  for (int i = 1; i < n; ++i) {
    int d1 = i;
    for (int d0 = i - 1; d0 >= 0; --d0) {
      const int c = compare(perm[d0], perm[d1]);
      if (c > 0) {
        std::swap(perm[d0], perm[d1]);
        d1 = d0;
      } else if (c < 0) {
        break;
      }
    }
  }
  Dims out = Dims::filled(n, 1);
  int64_t next = 1;
  for (int i = 0; i < n; ++i) {
    out[perm[i]] = next;
    next = checked_mul(next, std::max<int64_t>(sizes[perm[i]], 1));
  }
  return out;
}
// Strides of a dense copy that keeps the order of dimensions of `strides` (torch.empty_like, preserve_format).
Dims dense_strides_like(const Dims& sizes, const Dims& strides);
// Strides under which `sizes`/`strides` can be seen as `shape` without a copy; false when it cannot.
bool view_strides(const Dims& sizes, const Dims& strides, const Dims& shape, Dims* out);
// `shape` may hold one -1, which takes what is left of `total`.
Dims infer_size(Dims shape, int64_t total);

}  // namespace plimsoll
