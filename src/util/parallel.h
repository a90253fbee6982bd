// One loop over independent pieces of work on all cores. What a piece throws is thrown again when all are done, that of the first piece
// in order, so that the outcome does not depend on the threads.
#pragma once

#include <cstddef>
#include <functional>

#include "util/progress_counter.h"

namespace plimsoll {

// Calls work(0) to work(count - 1), in threads as far as they can be had, and in this one.
void parallel_for(size_t count, const std::function<void(size_t)>& work);
// The same, which `progress` can end: no piece begins after that, and Cancelled is thrown. The pieces say how far they are.
void parallel_for(size_t count, const std::function<void(size_t)>& work, const ProgressCounter& progress);

}  // namespace plimsoll
