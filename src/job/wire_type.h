// The element type that sharded weights are computed with, or gradients are reduced in; own: that of the weights.
#pragma once

#include <cstdint>

namespace plimsoll {

class Config;

enum class WireType : uint8_t { own, fp32, bf16, fp16 };
const char* to_string(WireType t);
WireType parse_wire_type(const Config& c, const char* key, WireType fallback);

}  // namespace plimsoll
