#include "tensor/dims.h"

namespace plimsoll {

std::string to_string(const Dims& dims) {
  std::string text = "(";
  for (int i = 0; i < dims.size(); ++i) text += (i ? ", " : "") + std::to_string(dims[i]);
  return text + ")";
}

int64_t numel(const Dims& sizes) {
  int64_t n = 1;
  for (int64_t s : sizes) {
    if (s < 0) throw Error("[shape] negative size in " + to_string(sizes), "sizes must be 0 or more");
    n = checked_mul(n, s);
  }
  return n;
}

Dims contiguous_strides(const Dims& sizes) {
  Dims strides = Dims::filled(sizes.size(), 1);
  for (int i = sizes.size() - 2; i >= 0; --i) strides[i] = checked_mul(strides[i + 1], std::max<int64_t>(sizes[i + 1], 1));
  return strides;
}

Dims channels_last_strides(const Dims& sizes) {
  assert(sizes.size() == 4);
  const int64_t c = sizes[1], w = sizes[3];
  return {checked_mul(checked_mul(sizes[2], w), c), 1, checked_mul(w, c), c};
}

bool is_contiguous(const Dims& sizes, const Dims& strides) {
  int64_t expected = 1;
  for (int i = sizes.size() - 1; i >= 0; --i) {
    if (sizes[i] == 0) return true;
    if (sizes[i] == 1) continue;
    if (strides[i] != expected) return false;
    expected *= sizes[i];
  }
  return true;
}

// c10's is_channels_last_strides_2d: also refuses shapes that only look channels-last because of sizes of 1.
bool is_channels_last(const Dims& sizes, const Dims& strides) {
  if (sizes.size() != 4 || strides[1] == 0) return false;
  int64_t min = 0;
  for (int d : {1, 3, 2, 0}) {
    if (sizes[d] == 0 || strides[d] < min) return false;
    if (d == 0 && min == strides[1]) return false;
    min = strides[d];
    if (sizes[d] > 1) min *= sizes[d];
  }
  return true;
}

bool is_non_overlapping_and_dense(const Dims& sizes, const Dims& strides) {
  if (sizes.size() == 1) return sizes[0] < 2 || strides[0] == 1;
  int perm[Dims::kMax];
  for (int i = 0; i < sizes.size(); ++i) perm[i] = i;
  auto inside = [&](int a, int b) {  // dimensions of size 0 or 1 come last
    if (sizes[a] < 2) return false;
    if (sizes[b] < 2) return true;
    return strides[a] < strides[b];
  };
  for (int i = 1; i < sizes.size(); ++i)
    for (int k = i; k > 0 && inside(perm[k], perm[k - 1]); --k) std::swap(perm[k], perm[k - 1]);
  int64_t expected = 1;
  for (int i = 0; i < sizes.size(); ++i) {
    const int d = perm[i];
    if (sizes[d] < 2) return true;
    if (strides[d] != expected) return false;
    expected *= sizes[d];
  }
  return true;
}

Dims broadcast(const Dims& a, const Dims& b) {
  const int n = std::max(a.size(), b.size());
  Dims out = Dims::filled(n, 1);
  for (int i = 0; i < n; ++i) {
    const int ia = i - (n - a.size()), ib = i - (n - b.size());
    const int64_t sa = ia < 0 ? 1 : a[ia], sb = ib < 0 ? 1 : b[ib];
    if (sa != sb && sa != 1 && sb != 1)
      throw Error("[broadcast] shapes " + to_string(a) + " and " + to_string(b) + " do not match", "check the model's sizes");
    out[i] = sa == 1 ? sb : sa;
  }
  return out;
}

Dims dense_strides_like(const Dims& sizes, const Dims& strides) {
  if (is_contiguous(sizes, strides) || is_non_overlapping_and_dense(sizes, strides)) return strides;
  return ordered_strides(sizes, [&](int d0, int d1) {
    if (strides[d0] == 0 || strides[d1] == 0) return 0;
    if (strides[d0] != strides[d1]) return strides[d0] < strides[d1] ? -1 : 1;
    return sizes[d0] > sizes[d1] ? 1 : 0;
  });
}

// at::detail::computeStride: walks the old dimensions from the inside in chunks that are contiguous in memory.
bool view_strides(const Dims& sizes, const Dims& strides, const Dims& shape, Dims* out) {
  const int64_t total = numel(sizes);
  if (total == 0) {
    *out = shape == sizes ? strides : contiguous_strides(shape);
    return true;
  }
  *out = Dims::filled(shape.size(), 1);
  if (sizes.empty()) return true;
  int view_d = shape.size() - 1;
  int64_t chunk_base = strides[-1], tensor_n = 1, view_n = 1;
  for (int d = sizes.size() - 1; d >= 0; --d) {
    tensor_n *= sizes[d];
    if (d == 0 || (sizes[d - 1] != 1 && strides[d - 1] != tensor_n * chunk_base)) {
      while (view_d >= 0 && (view_n < tensor_n || shape[view_d] == 1)) {
        (*out)[view_d] = view_n * chunk_base;
        view_n *= shape[view_d];
        --view_d;
      }
      if (view_n != tensor_n) return false;
      if (d > 0) {
        chunk_base = strides[d - 1];
        tensor_n = view_n = 1;
      }
    }
  }
  return view_d == -1;
}

Dims infer_size(Dims shape, int64_t total) {
  int unknown = -1;
  int64_t known = 1;
  for (int i = 0; i < shape.size(); ++i) {
    if (shape[i] == -1) {
      unknown = i;
    } else {
      known = checked_mul(known, shape[i]);
    }
  }
  if (unknown >= 0 && known > 0 && total % known == 0) {
    shape[unknown] = total / known;
  } else if (unknown >= 0 || known != total) {
    throw Error("[view] " + std::to_string(total) + " elements cannot be seen as " + to_string(shape), "check the model's sizes");
  }
  return shape;
}

}  // namespace plimsoll
