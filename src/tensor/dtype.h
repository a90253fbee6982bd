// Element types, by PyTorch's names, and the rules that depend on nothing but them.
#pragma once

#include <cstdint>
#include <string_view>

namespace plimsoll {

enum class DType : uint8_t { float32, float16, bfloat16, float64, int64, int32, uint8, int8, bool_ };

constexpr int64_t size_of(DType t) {
  switch (t) {
    case DType::float64:
    case DType::int64: return 8;
    case DType::float32:
    case DType::int32: return 4;
    case DType::float16:
    case DType::bfloat16: return 2;
    case DType::uint8:
    case DType::int8:
    case DType::bool_: return 1;
  }
  return 1;
}

constexpr bool is_floating(DType t) { return t <= DType::float64; }
constexpr bool is_half(DType t) { return t == DType::float16 || t == DType::bfloat16; }

// torch.promote_types for the pairs that training code meets: the wider float, float over integer over bool.
constexpr DType promote(DType a, DType b) {
  if (a == b) return a;
  if (is_floating(a) != is_floating(b)) return is_floating(a) ? a : b;
  if (is_floating(a)) {
    if (a == DType::float64 || b == DType::float64) return DType::float64;
    return DType::float32;  // float32 with a half, or float16 with bfloat16
  }
  return size_of(a) >= size_of(b) ? a : b;
}

constexpr std::string_view dtype_name(DType t) {
  constexpr std::string_view kNames[] = {"float32", "float16", "bfloat16", "float64", "int64", "int32", "uint8", "int8", "bool"};
  return kNames[static_cast<int>(t)];
}

}  // namespace plimsoll
