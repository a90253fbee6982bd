// One simulated process on one device. The tape writes the trace, holds the modes (grad, autocast), the scope stack, the
// phase and the dialect (which attention kernel, which recorder's rules). There is no other state: factory functions take
// the tape, and a tensor reaches it through its storage.
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "job/attention_kernel.h"
#include "job/checkpointing.h"
#include "tensor/kernel_memory.h"
#include "tensor/kernel_rules.h"
#include "tensor/pool.h"
#include "tensor/tensor.h"
#include "tensor/work.h"

namespace plimsoll {

class CheckpointFrame;
class Dataflow;

// Bytes that come and go.
struct ByteCount {
  int64_t now = 0, peak = 0;
  void add(int64_t bytes) { peak = std::max(peak, now = checked_add(now, bytes)); }
  void remove(int64_t bytes) { now -= bytes; }
};

// How the simulated process differs from a plain CUDA run.
struct Dialect {
  AttentionKernel attention = AttentionKernel::automatic;
  // What a value read from the device (`.item()`, `if tensor:`) is taken to be. Recorded rows run on tensors without data,
  // where it is a constant; empty means the usual course of a real run (layer drop keeps every layer, ...).
  std::optional<double> item;
  // Rows recorded under a dispatch mode: some in-place operations of a plain CUDA run allocate there.
  bool recorder = false;
  // Recorded rows of several processes call a gradient so when backward has ended, not when it is accumulated.
  bool late_gradient_labels = false;
  KernelRules rules = kCudaRules;
  Version torch = Platform{}.torch;  // for rules that were others once
  KernelMemory kernels;
};

// Where the gradient of a parameter that is a shard is, when backward has ended.
enum class GradientPlacement : uint8_t {
  own,      // sharded as the parameter is
  whole,    // on every rank: ops that use it take their shard of it first
  partial,  // a summand: ops that use it sum it over the ranks first
};

// A leaf that collects a gradient.
struct Parameter {
  std::string name;
  Tensor value;
  Tensor grad;
  Ref<Node> accumulate;              // made when first needed
  Tensor low_precision;              // autocast's cached cast
  Parameter* copied_from = nullptr;  // the frozen one this one is trained in place of
  std::string copied_under;          // the module that was copied with it
  int64_t elements = 0;              // that it stands for, when it is packed; 0: as many as it has
  bool is_dtensor = false;
  GradientPlacement gradient_placement = GradientPlacement::own;
};

class Tape {
 public:
  explicit Tape(Dialect dialect = {});
  ~Tape();
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  Trace trace;
  Dialect dialect;
  bool keep_shapes = false;  // in the trace, for reports

  // Modes.
  bool grad_enabled = true;
  bool training = true;           // model.train(): dropout drops, normalisation takes the batch's statistics
  std::optional<DType> autocast;  // the lower precision type while inside autocast
  int autocast_depth = 0;

  // Where we are.
  const char* op = "";
  ScopeId scope = 0;
  std::optional<Category> category;  // overrides the category by phase
  Phase phase() const { return phase_; }
  void begin_phase(Phase p);
  void begin_step();

  // Saved-tensor hooks of activation checkpointing; null outside.
  CheckpointFrame* packing = nullptr;
  CheckpointFrame* recomputing = nullptr;
  Offload saves_on = Offload::none;  // save_on_cpu: what is kept for backward goes to the host
  ByteCount on_host;

  // What every op reads and makes, for frameworks that compile the whole step; null: not recorded.
  Dataflow* dataflow = nullptr;
  // What every kernel computes and moves; null: not counted.
  Work* work = nullptr;
  // Says what the op that runs multiplies, so many floating-point operations.
  void flops(double n, DType dtype, Unit unit) {
    if (work) work->flops(n, dtype, unit);
  }

  uint64_t next_sequence() { return sequence_++; }
  Ref<Storage> allocate(int64_t bytes);
  void on_free(Storage& s);
  void relabel(const Tensor& t, Category c);
  void describe(const Storage& s, const Dims& sizes, DType dtype);  // keeps the shape of its first tensor
  ScopeId scope_of(const Tensor& t) const;                          // the module that made its storage
  void remember_cast(Parameter& p, Tensor cast);
  void clear_casts();
  // A matrix product begins on this thread, with a fused bias (cuBLASLt) or without.
  void use_blas(bool with_bias);
  // What a kernel needs while it runs: bytes taken and given back at once. The caller holds the result while there is more.
  Ref<Storage> scratch(int64_t bytes);
  // Deletes graph nodes without recursion.
  void destroy_deferred(Node* n);

  Pool<Storage> storage_pool;
  Pool<TensorBody> body_pool;
  SizedPool node_memory;  // of the graph

 private:
  NameId op_name();
  Ref<Storage> keep_workspace(const char* name, int64_t bytes);

  Phase phase_ = Phase::setup;
  uint64_t sequence_ = 0;
  std::unordered_map<const char*, NameId> op_ids_;
  const char* last_op_ = nullptr;
  NameId last_op_id_ = 0;
  std::vector<Category> labels_;  // by storage: what it is now
  std::vector<Parameter*> cast_parameters_;
  std::vector<Node*> pending_;
  bool destroying_ = false;
  std::array<Ref<Storage>, 2> blas_, blas_lt_;  // of the forward and the backward thread

 public:
  // Called after each gradient that reaches its parameter, as a hook on AccumulateGrad is; may be empty.
  std::function<void(Parameter&)> gradient_arrived;
  // Tensor.register_hook on what a node returned, before that node runs: the gradient it is to get instead. One for each node.
  std::unordered_map<const Node*, std::function<Tensor(const Tensor&)>> gradient_hooks;
};

// ---- guards -------------------------------------------------------------------------------------------------------
class ScopeGuard {
 public:
  ScopeGuard(Tape& tape, ScopeId scope) : tape_(tape), old_(tape.scope) { tape.scope = scope; }
  ~ScopeGuard() { tape_.scope = old_; }

 private:
  Tape& tape_;
  ScopeId old_;
};

class GradGuard {
 public:
  GradGuard(Tape& tape, bool enabled) : tape_(tape), old_(tape.grad_enabled) { tape.grad_enabled = enabled; }
  ~GradGuard() { tape_.grad_enabled = old_; }

 private:
  Tape& tape_;
  bool old_;
};

// torch.autocast: casts of leaves are kept until the outermost context ends.
class AutocastGuard {
 public:
  AutocastGuard(Tape& tape, std::optional<DType> dtype);
  ~AutocastGuard();

 private:
  Tape& tape_;
  std::optional<DType> old_;
};

// ---- factories ----------------------------------------------------------------------------------------------------
Tensor make_tensor(Ref<Storage> storage, const Dims& sizes, const Dims& strides, DType dtype);
Tensor empty(Tape& tape, const Dims& sizes, DType dtype);
Tensor empty_strided(Tape& tape, const Dims& sizes, const Dims& strides, DType dtype);
Tensor empty_like(const Tensor& t);  // preserve_format
Tensor empty_like(const Tensor& t, DType dtype);
Tensor alias(const Tensor& t, const Dims& sizes, const Dims& strides);  // a view, without autograd
Tensor detach(const Tensor& t);

}  // namespace plimsoll
