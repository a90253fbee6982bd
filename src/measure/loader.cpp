#include "measure/loader.h"

#include <cstring>

namespace plimsoll::measure {

Loader::Loader(LiveModel& model, const Data& data, int64_t workers, int64_t ahead, int64_t first, int64_t end)
    : model_(model), data_(data), next_(first), end_(end), given_out_(first) {
  if (workers == 0) return;
  const HostMemory host;
  for (int64_t i = 0; i < std::min(std::max(ahead, workers), end - first); ++i) free_.push_back(&rooms_.emplace_back(model.make_inputs(1)));
  for (int64_t i = 0; i < workers; ++i) threads_.emplace_back([this] { work(); });
}

Loader::~Loader() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  for (std::thread& t : threads_) t.join();
}

void Loader::work() {
  for (std::unique_lock lock(mutex_);;) {
    changed_.wait(lock, [&] { return ending_ || failure_ || (next_ < end_ && !free_.empty()); });
    if (ending_ || failure_) return;
    const int64_t sample = next_++;
    Tensors* room = free_.back();
    free_.pop_back();
    lock.unlock();
    std::exception_ptr failure;
    try {
      model_.fill(*room, 0, data_, sample);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    if (failure)
      failure_ = failure;
    else
      ready_[sample] = room;
    changed_.notify_all();
  }
}

const Tensors* Loader::wait_for(int64_t sample) {
  std::unique_lock lock(mutex_);
  if (threads_.empty() || sample < given_out_) return nullptr;
  changed_.wait(lock, [&] { return failure_ || ready_.contains(sample); });
  if (!ready_.contains(sample)) std::rethrow_exception(failure_);
  return ready_[sample];
}

void Loader::fill(const Tensors& inputs, int64_t row, int64_t rows, int64_t sample) {
  const Tensors* made = wait_for(sample);
  if (!made) return model_.fill(inputs, row, data_, sample);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const size_t bytes = (*made)[i].nbytes();
    if (inputs[i].nbytes() != bytes * static_cast<size_t>(rows)) continue;  // the same for all samples
    std::memcpy(static_cast<char*>(inputs[i].data_ptr()) + bytes * static_cast<size_t>(row), (*made)[i].data_ptr(), bytes);
  }
  const std::lock_guard lock(mutex_);
  free_.push_back(ready_[sample]);
  ready_.erase(sample);
  given_out_ = sample + 1;
  changed_.notify_all();
}

}  // namespace plimsoll::measure
