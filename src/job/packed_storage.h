// The type that bitsandbytes keeps packed 4-bit weights in (bnb_4bit_quant_storage): the end of a quantization's type, "nf4-bf16". What
// PyTorch shards has to be of a floating type; the bytes are the same.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "job/tuning.h"
#include "job/wire_type.h"

namespace plimsoll {

// None: uint8, or not packed by bitsandbytes.
std::optional<WireType> packed_storage(const QuantizationSettings& quantization);

// "nf4" and "bf16" make "nf4-bf16"; "uint8" is left out.
std::string with_storage(const std::string& type, const std::string& storage);

// The types that end so.
std::vector<std::string> stored_types();

}  // namespace plimsoll
