#include "job/wire_type.h"

#include <fmt/format.h>

#include "job/config.h"
#include "util/error.h"

namespace plimsoll {

const char* to_string(WireType t) {
  switch (t) {
    case WireType::own: return "own";
    case WireType::fp32: return "fp32";
    case WireType::bf16: return "bf16";
    case WireType::fp16: return "fp16";
  }
  return "";
}

WireType parse_wire_type(const Config& c, const char* key, WireType fallback) {
  const std::string text = c.text({key}, to_string(fallback));
  for (WireType t : {WireType::own, WireType::fp32, WireType::bf16, WireType::fp16})
    if (text == to_string(t)) return t;
  throw Error(fmt::format("[{}] {} '{}' is not known", c.source(), key, text), "known: own, fp32, bf16, fp16");
}

}  // namespace plimsoll
