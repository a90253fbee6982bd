#include "job/packed_storage.h"

#include "util/error.h"

namespace plimsoll {

namespace {

constexpr WireType kStorages[]{WireType::bf16, WireType::fp16, WireType::fp32};

bool is_packed_by_bitsandbytes(const std::string& type) { return type == "nf4" || type == "fp4"; }

}  // namespace

std::optional<WireType> packed_storage(const QuantizationSettings& quantization) {
  for (const WireType storage : kStorages)
    if (quantization.type == "nf4-" + std::string(to_string(storage)) || quantization.type == "fp4-" + std::string(to_string(storage)))
      return storage;
  return std::nullopt;
}

std::string with_storage(const std::string& type, const std::string& storage) {
  if (storage == "uint8") return type;
  for (const WireType known : kStorages)
    if (storage == to_string(known) && is_packed_by_bitsandbytes(type)) return type + "-" + storage;
  throw Error("[quantization] storage " + storage + " of " + type + " is not known", "known: uint8; bf16, fp16 and fp32 of nf4 and fp4");
}

std::vector<std::string> stored_types() {
  std::vector<std::string> types;
  for (const char* type : {"nf4", "fp4"})
    for (const WireType storage : kStorages) types.push_back(with_storage(type, to_string(storage)));
  return types;
}

}  // namespace plimsoll
