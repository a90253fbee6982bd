#include "util/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <system_error>
#include <thread>
#include <vector>

namespace plimsoll {

void parallel_for(size_t count, const std::function<void(size_t)>& work) {
  std::vector<std::exception_ptr> errors(count);
  std::atomic<size_t> next = 0;
  const auto loop = [&] {
    for (size_t i = next++; i < count; i = next++) {
      try {
        work(i);
      } catch (...) {
        errors[i] = std::current_exception();
      }
    }
  };
  {
    std::vector<std::jthread> threads;
    const size_t cores = std::max(1u, std::thread::hardware_concurrency());
    try {
      for (size_t i = 1; i < std::min(cores, count); ++i) threads.emplace_back(loop);
    } catch (const std::system_error&) {  // no more threads: those at hand do the work
    }
    loop();
  }
  for (const std::exception_ptr& e : errors)
    if (e) std::rethrow_exception(e);
}

void parallel_for(size_t count, const std::function<void(size_t)>& work, const ProgressCounter& progress) {
  parallel_for(count, [&](size_t i) {
    if (!progress.cancelled()) work(i);
  });
  if (progress.cancelled()) throw Cancelled{};
}

}  // namespace plimsoll
