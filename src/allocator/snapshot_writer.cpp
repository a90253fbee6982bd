#include "allocator/snapshot_writer.h"

#include <fmt/format.h>

#include <optional>
#include <unordered_map>
#include <utility>

#include "allocator/cuda_timeline.h"
#include "trace/pickle_writer.h"
#include "trace/snapshot_stacks.h"
#include "util/error.h"

namespace plimsoll {

namespace {

constexpr int64_t kFirstAddress = int64_t{0x7f} << 40;  // where drivers put device memory, about

class Writer {
 public:
  Writer(const Trace& trace, const AllocConf& conf, const std::vector<std::string>& steps)
      : trace_(trace),
        conf_(conf),
        steps_(steps),
        allocator_(CudaDevice{kBoundlessDevice, 0, {}}, conf),
        blocks_(trace.storages.size(), nullptr) {}

  std::string write() {
    w_.open('}');
    key("device_traces");
    w_.open(']');
    w_.open(']');
    for (const Event& e : trace_.events) perform(e);
    end_phase();
    end_step();
    w_.close('e');
    w_.close('e');
    segments();
    settings();
    annotations();
    w_.close('u');
    return w_.finish();
  }

 private:
  struct Annotation {
    int64_t time;
    bool start;
    std::string name;
  };

  void key(std::string_view name) { w_.text(name); }
  void number(std::string_view name, int64_t v) {
    key(name);
    w_.integer(v);
  }
  void word(std::string_view name, std::string_view v) {
    key(name);
    w_.text(v);
  }

  // --- what happened

  void perform(const Event& e) {
    switch (e.kind) {
      case Event::Kind::alloc: return allocate(e.storage);
      case Event::Kind::free: return free(e.storage);
      case Event::Kind::relabel: return;
      case Event::Kind::phase:
        end_phase();
        phase_ = std::string(phase_name(static_cast<Phase>(e.value)));
        annotations_.push_back({time_, true, *phase_});
        return;
      case Event::Kind::step:
        end_phase();
        end_step();
        step_ = steps_begun_ < steps_.size() ? steps_[steps_begun_] : fmt::format("step {}", steps_begun_ + 1);
        ++steps_begun_;
        annotations_.push_back({time_, true, *step_});
        return;
    }
  }

  void end_phase() {
    if (phase_) annotations_.push_back({time_, false, *std::exchange(phase_, std::nullopt)});
  }
  void end_step() {
    if (step_) annotations_.push_back({time_, false, *std::exchange(step_, std::nullopt)});
  }

  void allocate(StorageId id) {
    const int64_t bytes = trace_.storages[id].bytes;
    if (bytes <= 0) return;
    allocator_.clear_device_events();
    CudaBlock* block = blocks_[id] = allocator_.allocate(bytes);
    if (!block) throw Error(fmt::format("[snapshot] {} bytes are beyond any device", bytes), "a smaller batch or model");
    storage_[block] = id;
    for (const DeviceEvent& d : allocator_.device_events()) segment_event(d, id);
    entry("alloc", block->address, bytes, id);
  }

  void segment_event(const DeviceEvent& d, StorageId id) {
    const bool pages = conf_.expandable_segments;
    entry(d.bytes > 0 ? (pages ? "segment_map" : "segment_alloc")
          : pages     ? "segment_unmap"
                      : "segment_free",
          d.address, std::abs(d.bytes), id);
  }

  void free(StorageId id) {
    CudaBlock* block = std::exchange(blocks_[id], nullptr);
    if (!block) return;
    const int64_t address = block->address, bytes = trace_.storages[id].bytes;
    storage_.erase(block);
    allocator_.free(block);
    entry("free_requested", address, bytes, id);
    entry("free_completed", address, bytes, id);
  }

  void entry(const char* action, int64_t address, int64_t size, StorageId id) {
    if (++entries_ % 1000 == 0) w_.batch();
    w_.open('}');
    word("action", action);
    number("addr", kFirstAddress + address);
    number("size", size);
    number("stream", 0);
    number("time_us", time_++);
    word("compile_context", "N/A");
    frames(id);
    w_.close('u');
  }

  // --- who asked: the op, and the modules around it, innermost first

  void frames(StorageId id) {
    const StorageRecord& s = trace_.storages[id];
    key("frames");
    const auto [it, added] = stacks_.try_emplace((uint64_t{s.scope} << 32) | s.op, 0);
    if (!added) return w_.get(it->second);
    it->second = w_.open(']');
    frame(trace_.names[s.op], s.scope, "op" + std::to_string(s.op));
    for (ScopeId scope = s.scope; scope != 0; scope = trace_.scopes[scope].parent)
      frame(trace_.names[trace_.scopes[scope].name], scope, "module");
    w_.close('e');
  }

  void frame(const std::string& name, ScopeId scope, const std::string& kind) {
    const auto [it, added] = frames_.try_emplace(fmt::format("{}:{}", scope, kind), 0);
    if (!added) return w_.get(it->second);
    it->second = w_.open('}');
    word("name", name);
    word("filename", std::string(kSimulatedFile) + trace_.scope_path(scope));
    number("line", 0);
    w_.close('u');
  }

  // --- the end

  void segments() {
    key("segments");
    w_.open(']');
    for (const auto& [id, segment] : allocator_.segments()) {
      for (const CudaBlock* first = segment.first; first;) {
        const CudaBlock* end = first;  // behind the contiguous mapped part that begins with `first`
        int64_t size = 0, allocated = 0, requested = 0;
        for (; end && end->mapped; end = end->next) {
          size += end->size;
          allocated += end->allocated ? end->size : 0;
          requested += end->allocated ? end->requested : 0;
        }
        if (size > 0) part(first, end, size, allocated, requested);
        first = end ? end->next : nullptr;
      }
    }
    w_.close('e');
  }

  void part(const CudaBlock* first, const CudaBlock* end, int64_t size, int64_t allocated, int64_t requested) {
    w_.open('}');
    number("device", 0);
    number("address", kFirstAddress + first->address);
    number("total_size", size);
    number("allocated_size", allocated);
    number("active_size", allocated);
    number("requested_size", requested);
    number("stream", 0);
    word("segment_type", first->pool->small ? "small" : "large");
    key("segment_pool_id");
    w_.pair(0, 0);
    key("is_expandable");
    w_.boolean(conf_.expandable_segments);
    key("frames");
    w_.list();
    key("blocks");
    w_.open(']');
    for (const CudaBlock* b = first; b != end; b = b->next) {
      w_.open('}');
      number("address", kFirstAddress + b->address);
      number("size", b->size);
      number("requested_size", b->allocated ? b->requested : 0);
      word("state", b->allocated ? "active_allocated" : "inactive");
      if (b->allocated) {
        frames(storage_.at(b));
      } else {
        key("frames");
        w_.list();
      }
      w_.close('u');
    }
    w_.close('e');
    w_.close('u');
  }

  void settings() {
    key("allocator_settings");
    w_.open('}');
    word("PYTORCH_CUDA_ALLOC_CONF", alloc_conf_text(conf_));
    number("max_split_size", conf_.max_split_size == kUnlimited ? -1 : conf_.max_split_size);
    key("garbage_collection_threshold");
    w_.real(conf_.garbage_collection_threshold);
    key("expandable_segments");
    w_.boolean(conf_.expandable_segments);
    key("roundup_power2_divisions");
    w_.open('}');
    for (size_t i = 0; i < kDivisionIntervals; ++i) number(std::to_string(int64_t{1} << i), conf_.divisions[i]);
    w_.close('u');
    w_.close('u');
  }

  void annotations() {
    key("external_annotations");
    if (annotations_.empty()) return w_.list();
    w_.open(']');
    for (const Annotation& a : annotations_) {
      w_.open('}');
      number("device", 0);
      number("time_us", a.time);
      word("name", a.name);
      word("stage", a.start ? "START" : "END");
      w_.close('u');
    }
    w_.close('e');
  }

  const Trace& trace_;
  const AllocConf& conf_;
  const std::vector<std::string>& steps_;
  CudaCachingAllocator allocator_;
  std::vector<CudaBlock*> blocks_;
  std::unordered_map<const CudaBlock*, StorageId> storage_;
  PickleWriter w_{4};
  std::unordered_map<uint64_t, uint32_t> stacks_;     // memo of the frames of an op in a scope
  std::unordered_map<std::string, uint32_t> frames_;  // memo of a frame
  std::vector<Annotation> annotations_;
  std::optional<std::string> phase_, step_;
  size_t steps_begun_ = 0, entries_ = 0;
  int64_t time_ = 1;
};

}  // namespace

std::string snapshot_pickle(const Trace& trace, const AllocConf& conf, const std::vector<std::string>& steps) {
  return Writer(trace, conf, steps).write();
}

}  // namespace plimsoll
