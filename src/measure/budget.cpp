#include "measure/budget.h"

#include <ATen/record_function.h>
#include <c10/core/CPUAllocator.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "util/bytes.h"

namespace plimsoll::measure {

namespace {

constexpr size_t kAlignment = 64;  // c10's gAlignment

thread_local bool of_the_host = false;

Category category_of(Phase p) {
  switch (p) {
    case Phase::setup: return Category::parameter;
    case Phase::backward: return Category::backward;
    case Phase::optimizer:
    case Phase::ema: return Category::optimizer;
    default: return Category::activation;
  }
}

}  // namespace

// The names of the ops that run, from the profiler's hook. Backward nodes carry the sequence number of the op that they belong to.
class OpNames {
 public:
  static std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& f) {
    Budget& b = Budget::instance();
    std::lock_guard lock(b.mutex_);
    auto context = std::make_unique<Context>();
    context->scope = b.scope_;
    b.ops_.push_back(b.trace_.intern(f.name()));
    if (f.seqNr() >= 0) {
      if (f.scope() == at::RecordScope::BACKWARD_FUNCTION) {
        const auto found = b.scope_of_sequence_.find(f.seqNr());
        if (found != b.scope_of_sequence_.end()) b.scope_ = found->second;
      } else {
        b.scope_of_sequence_.try_emplace(f.seqNr(), b.scope_);
      }
    }
    return context;
  }
  static void end(const at::RecordFunction&, at::ObserverContext* context) {
    Budget& b = Budget::instance();
    std::lock_guard lock(b.mutex_);
    if (!b.ops_.empty()) b.ops_.pop_back();
    b.scope_ = static_cast<Context*>(context)->scope;
  }

 private:
  struct Context : at::ObserverContext {
    ScopeId scope = 0;
  };
};

Budget* Budget::make() {
  auto* budget = new Budget;  // c10 never lets go of it, and tensors may die after main
  c10::SetCPUAllocator(budget, 255);
  return budget;
}

Budget& Budget::instance() {
  static Budget* const kBudget = make();
  return *kBudget;
}

void Budget::refuse(int64_t bytes) const {
  const auto size = [](int64_t n) { return to_string(Bytes{n}); };
  const std::string message =
      fmt::format("out of memory on the virtual device. Tried to allocate {} ({} total capacity; {} already allocated; {} free)",
                  size(bytes), size(limit_), size(used_), size(limit_ - used_));
  TORCH_CHECK_WITH(OutOfMemoryError, false, message);
  std::abort();
}

c10::DataPtr Budget::allocate(size_t bytes) const {
  const c10::Device cpu(c10::DeviceType::CPU);
  if (bytes == 0) return {nullptr, nullptr, &c10::detail::deleteNothing, cpu};
  auto& self = const_cast<Budget&>(*this);  // the interface is const
  std::lock_guard lock(mutex_);
  if (limit_ > 0 && !of_the_host && static_cast<int64_t>(bytes) > limit_ - used_) refuse(static_cast<int64_t>(bytes));
  void* memory = nullptr;
  if (posix_memalign(&memory, kAlignment, bytes) != 0)
    TORCH_CHECK_WITH(OutOfMemoryError, false,
                     fmt::format("this machine has not the {} that were asked for", to_string(Bytes{static_cast<int64_t>(bytes)})));
  if (!of_the_host) self.take(memory, static_cast<int64_t>(bytes));
  return {memory, memory, raw_deleter(), cpu};
}

c10::DeleterFnPtr Budget::raw_deleter() const {
  return [](void* memory) {
    Budget::instance().give_back(memory);
    std::free(memory);
  };
}

void Budget::take(void* memory, int64_t bytes) {
  used_ += bytes;
  peak_ = std::max(peak_, used_);
  highest_ = std::max(highest_, used_);
  Piece piece{bytes, kUntraced, category_.value_or(category_of(phase_))};
  if (recording_) {
    piece.id = static_cast<StorageId>(trace_.storages.size());
    trace_.storages.push_back({bytes, ops_.empty() ? NameId{0} : ops_.back(), scope_, piece.category, phase_});
    trace_.events.push_back({Event::Kind::alloc, 0, piece.id});
  }
  alive_.emplace(memory, piece);
}

void Budget::give_back(void* memory) {
  if (!memory) return;
  std::lock_guard lock(mutex_);
  const auto found = alive_.find(memory);
  if (found == alive_.end()) return;
  used_ -= found->second.bytes;
  if (recording_ && found->second.id != kUntraced) trace_.events.push_back({Event::Kind::free, 0, found->second.id});
  alive_.erase(found);
}

int64_t Budget::take_peak() {
  std::lock_guard lock(mutex_);
  return std::exchange(peak_, used_);
}

void Budget::record(bool on) {
  if (on == recording_) return;
  static at::CallbackHandle handle = 0;
  if (on)
    handle = at::addGlobalCallback(
        at::RecordFunctionCallback(&OpNames::begin, &OpNames::end).scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
  else
    at::removeCallback(handle);
  std::lock_guard lock(mutex_);
  recording_ = on;
  ops_.clear();
}

Trace Budget::take_trace() {
  record(false);
  std::lock_guard lock(mutex_);
  for (auto& [memory, piece] : alive_) piece.id = kUntraced;
  scope_of_sequence_.clear();
  Trace out = std::move(trace_);
  trace_ = {};
  return out;
}

void Budget::begin_step() {
  std::lock_guard lock(mutex_);
  scope_of_sequence_.clear();
  if (recording_) trace_.events.push_back({Event::Kind::step, 0, 0});
}

void Budget::begin_phase(Phase phase) {
  std::lock_guard lock(mutex_);
  phase_ = phase;
  if (recording_) trace_.events.push_back({Event::Kind::phase, static_cast<uint8_t>(phase), 0});
}

void Budget::relabel(const torch::Tensor& t, Category category) {
  if (!t.defined() || !t.has_storage()) return;
  std::lock_guard lock(mutex_);
  const auto found = alive_.find(t.storage().data_ptr().get());
  if (found == alive_.end() || found->second.category == category) return;
  found->second.category = category;
  if (recording_ && found->second.id != kUntraced)
    trace_.events.push_back({Event::Kind::relabel, static_cast<uint8_t>(category), found->second.id});
}

HostMemory::HostMemory() : old_(std::exchange(of_the_host, true)) {}
HostMemory::~HostMemory() { of_the_host = old_; }

Place::Place(ScopeId parent, std::string_view name) {
  Budget& b = Budget::instance();
  std::lock_guard lock(b.mutex_);
  id_ = b.trace_.add_scope(parent, name);
}

}  // namespace plimsoll::measure
