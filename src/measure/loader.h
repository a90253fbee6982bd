// Samples that threads make ready while the model trains: what `--workers` of a trainer is for. A sample is the same whoever makes it, so
// the run is the same with any number of workers. What waits here is the host's memory, not the virtual device's.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <thread>

#include "measure/live_model.h"

namespace plimsoll::measure {

class Loader {
 public:
  // Those from `first` to `end` are asked for in this order; at most `ahead` wait. Without workers each is made when it is asked for.
  Loader(LiveModel& model, const Data& data, int64_t workers, int64_t ahead, int64_t first, int64_t end);
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // One sample into one row of `rows`. One that was given out before (a step that runs again) is made once more, here.
  void fill(const Tensors& inputs, int64_t row, int64_t rows, int64_t sample);

 private:
  void work();
  const Tensors* wait_for(int64_t sample);  // null: it was given out before

  LiveModel& model_;
  const Data& data_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Tensors> rooms_;  // of one sample each
  std::vector<Tensors*> free_;
  std::map<int64_t, Tensors*> ready_;
  int64_t next_, end_;  // the sample that the next worker takes
  int64_t given_out_;   // all before it were
  std::exception_ptr failure_;
  bool ending_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace plimsoll::measure
