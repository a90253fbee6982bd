#include "report/measured_memory.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace plimsoll {

namespace {

constexpr size_t kPageSlices = 400;  // about as many as a picture has columns

}  // namespace

std::vector<int64_t> slices_of(const MemoryCurve& curve) {
  std::vector<int64_t> out;
  int64_t now = 0;
  for (size_t i = 0; i < curve.begins; ++i) now += curve.changes[i].bytes;
  const size_t states = curve.changes.size() - curve.begins + 1, slices = std::min(kPageSlices, states);
  for (size_t slice = 0, state = 0; slice < slices; ++slice) {
    int64_t most = 0;
    for (const size_t end = (slice + 1) * states / slices; state < end; ++state) {
      if (state > 0) now += curve.changes[curve.begins + state - 1].bytes;
      most = std::max(most, now);
    }
    out.push_back(most);
  }
  return out;
}

nlohmann::ordered_json measured_json(const MeasuredMemory& measured, const MemoryCurve& predicted) {
  nlohmann::ordered_json numbers = nlohmann::ordered_json::array();
  for (const auto& [name, bytes] : measured.numbers) numbers.push_back({{"name", name}, {"bytes", bytes}});
  return {{"source", measured.source},
          {"numbers", numbers},
          {"slices", measured.slices},
          {"predicted_slices", measured.slices.empty() ? std::vector<int64_t>() : slices_of(predicted)}};
}

}  // namespace plimsoll
