// The memory of a virtual device. Installed as libtorch's CPU allocator it counts every byte that tensors ask for, writes down as a Trace
// who asked and when, and refuses what is beyond its limit with PyTorch's own out-of-memory error. Bytes are counted as asked for.
#pragma once

#include <torch/autograd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <array>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "trace/trace.h"

namespace plimsoll::measure {

class Budget final : public c10::Allocator {
 public:
  // The one of this process: c10 knows one CPU allocator, whose deleters are plain functions. Installed by the first call.
  static Budget& instance();

  c10::DataPtr allocate(size_t bytes) const override;
  c10::DeleterFnPtr raw_deleter() const override;

  void set_limit(int64_t bytes) { limit_ = bytes; }  // 0: none
  int64_t limit() const { return limit_; }
  int64_t used() const { return used_; }

  // Peaks since they were last asked for, and the most that was ever alive.
  int64_t take_peak();
  int64_t peak() const { return highest_; }

  // From now on (or no longer) what happens is written down. What was alive before recording began is not in the trace.
  void record(bool on);
  bool recording() const { return recording_; }
  Trace take_trace();

  void begin_step();
  void begin_phase(Phase phase);
  Phase phase() const { return phase_; }
  void relabel(const torch::Tensor& t, Category category);

 private:
  friend class Labelled;
  friend class Within;
  friend class OpNames;
  friend class Place;

  Budget() = default;
  static Budget* make();
  void take(void* memory, int64_t bytes);
  void give_back(void* memory);
  [[noreturn]] void refuse(int64_t bytes) const;

  struct Piece {
    int64_t bytes;
    StorageId id;
    Category category;
  };
  static constexpr StorageId kUntraced = ~StorageId{0};

  mutable std::mutex mutex_;
  std::unordered_map<void*, Piece> alive_;
  int64_t limit_ = 0, used_ = 0, peak_ = 0, highest_ = 0;
  bool recording_ = false;
  Trace trace_;
  Phase phase_ = Phase::setup;
  std::optional<Category> category_;
  ScopeId scope_ = 0;
  std::vector<NameId> ops_;                                 // those that are running, the innermost last
  std::unordered_map<int64_t, ScopeId> scope_of_sequence_;  // by autograd's sequence number, for the backward pass
};

// What is allocated while it lives is of this category.
class Labelled {
 public:
  explicit Labelled(Category category) : budget_(Budget::instance()), old_(std::exchange(budget_.category_, category)) {}
  ~Labelled() { budget_.category_ = old_; }
  Labelled(const Labelled&) = delete;
  Labelled& operator=(const Labelled&) = delete;

 private:
  Budget& budget_;
  std::optional<Category> old_;
};

// What this thread allocates while it lives is the host's memory: neither counted nor written down.
class HostMemory {
 public:
  HostMemory();
  ~HostMemory();
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;

 private:
  bool old_;
};

// A module in the tree that the trace labels allocations with: a model's modules have one each, made when they are.
class Place {
 public:
  Place() = default;  // the whole model
  Place(const Place& parent, std::string_view name) : Place(parent.id_, name) {}
  ScopeId id() const { return id_; }

 private:
  Place(ScopeId parent, std::string_view name);
  ScopeId id_ = 0;
};

// What is allocated while it lives belongs to this module, and so does what its backward allocates.
class Within {
 public:
  explicit Within(const Place& place) : budget_(Budget::instance()), old_(std::exchange(budget_.scope_, place.id())) {}
  ~Within() { budget_.scope_ = old_; }
  Within(const Within&) = delete;
  Within& operator=(const Within&) = delete;

 private:
  Budget& budget_;
  ScopeId old_;
};

}  // namespace plimsoll::measure
