#include "allocator/memory_curve.h"

#include <optional>
#include <unordered_map>
#include <utility>

#include "allocator/cuda_timeline.h"

namespace plimsoll {

namespace {

class Drawing {
 public:
  Drawing(const Trace& trace, const AllocConf& conf, bool allocator) : trace_(trace), labels_(trace.storages.size()) {
    if (!allocator) return;
    allocator_.emplace(CudaDevice{kBoundlessDevice, 0, {}}, conf);
    blocks_.resize(trace.storages.size(), nullptr);
  }

  MemoryCurve run(int64_t at_event) {
    for (size_t i = 0; i < trace_.events.size(); ++i) {
      perform(trace_.events[i]);
      if (static_cast<int64_t>(i) == at_event) look();
    }
    return std::move(out_);
  }

 private:
  void perform(const Event& e) {
    switch (e.kind) {
      case Event::Kind::alloc:
        labels_[e.storage] = trace_.storages[e.storage].born_as;
        change(e.storage, 1);
        place(e.storage);
        break;
      case Event::Kind::free:
        change(e.storage, -1);
        give_back(e.storage);
        break;
      case Event::Kind::relabel:
        change(e.storage, -1);
        labels_[e.storage] = static_cast<Category>(e.value);
        change(e.storage, 1);
        break;
      case Event::Kind::phase: out_.marks.push_back({out_.changes.size(), false, static_cast<Phase>(e.value)}); break;
      case Event::Kind::step: out_.marks.push_back({out_.changes.size(), true, Phase::setup}); break;
    }
  }

  void change(StorageId id, int sign) { out_.changes.push_back({sign * trace_.storages[id].bytes, id, labels_[id]}); }

  void place(StorageId id) {
    if (!allocator_ || trace_.storages[id].bytes <= 0) return;
    blocks_[id] = allocator_->allocate(trace_.storages[id].bytes);
    if (!blocks_[id]) allocator_.reset();  // larger than any device: the curve of what is alive goes on alone
    follow();
  }

  void give_back(StorageId id) {
    if (!allocator_ || !blocks_[id]) return;
    allocator_->free(std::exchange(blocks_[id], nullptr));
    follow();
  }

  void follow() {
    if (!allocator_) return out_.reserved.clear();
    const int64_t now = allocator_->stats().reserved;
    if (out_.reserved.empty() || out_.reserved.back().bytes != now) out_.reserved.push_back({out_.changes.size(), now});
  }

  void look() {
    out_.peak = out_.changes.size();
    if (!allocator_) return;
    std::unordered_map<const CudaBlock*, StorageId> storage;
    for (StorageId id = 0; id < blocks_.size(); ++id)
      if (blocks_[id]) storage[blocks_[id]] = id;
    out_.segments = placed_segments(*allocator_, [&](const CudaBlock* b) { return storage.at(b); });
  }

  const Trace& trace_;
  std::vector<Category> labels_;
  std::optional<CudaCachingAllocator> allocator_;
  std::vector<CudaBlock*> blocks_;
  MemoryCurve out_;
};

}  // namespace

MemoryCurve memory_curve(const Trace& trace, int64_t at_event, const AllocConf& conf, bool allocator) {
  return Drawing(trace, conf, allocator).run(at_event);
}

}  // namespace plimsoll
