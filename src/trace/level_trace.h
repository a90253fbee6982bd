// Builds a Trace from amounts instead of tensors: what grows is a storage, what shrinks ends the newest ones. For recordings that know
// how much there was, and not which.
#pragma once

#include <array>
#include <vector>

#include "trace/trace.h"

namespace plimsoll {

class LevelTrace {
 public:
  explicit LevelTrace(Trace& trace) : trace_(trace) {}

  // `bytes` > 0.
  void grow(Category category, int64_t bytes, const StorageRecord& like);
  // By at most what there is; returns what was not there.
  int64_t shrink(Category category, int64_t bytes);
  int64_t now(Category category) const { return now_[static_cast<size_t>(category)]; }

 private:
  Trace& trace_;
  std::array<std::vector<StorageId>, kCategories> alive_;
  std::array<int64_t, kCategories> now_{};
};

}  // namespace plimsoll
