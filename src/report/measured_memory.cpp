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
  const size_t changes = curve.changes.size() - curve.begins, slices = std::min(kPageSlices, changes + 1);
  size_t done = 0;
  for (size_t s = 0; s < slices; ++s) {
    int64_t most = now;
    for (const size_t end = (s + 1) * changes / slices; done < end; ++done)
      most = std::max(most, now += curve.changes[curve.begins + done].bytes);
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
