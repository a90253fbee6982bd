#include "trace/level_trace.h"

#include <algorithm>

namespace plimsoll {

void LevelTrace::grow(Category category, int64_t bytes, const StorageRecord& like) {
  const auto c = static_cast<size_t>(category);
  const auto id = static_cast<StorageId>(trace_.storages.size());
  StorageRecord s = like;
  s.bytes = bytes;
  s.born_as = category;
  trace_.storages.push_back(s);
  trace_.events.push_back({Event::Kind::alloc, 0, id});
  alive_[c].push_back(id);
  now_[c] += bytes;
}

int64_t LevelTrace::shrink(Category category, int64_t bytes) {
  const auto c = static_cast<size_t>(category);
  while (bytes > 0 && !alive_[c].empty()) {
    const StorageId id = alive_[c].back();
    const StorageRecord s = trace_.storages[id];
    alive_[c].pop_back();
    trace_.events.push_back({Event::Kind::free, 0, id});
    now_[c] -= s.bytes;
    if (s.bytes > bytes) grow(category, s.bytes - bytes, s);
    bytes -= std::min(bytes, s.bytes);
  }
  return bytes;
}

}  // namespace plimsoll
