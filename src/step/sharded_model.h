// What the training loop asks of a wrapper that shards a model (fully_shard, FullyShardedDataParallel), and what such wrappers share:
// storages that come and go under the tensors that look at them.
#pragma once

#include <optional>
#include <vector>

#include "job/wire_type.h"
#include "nn/model.h"
#include "nn/module_hooks.h"
#include "step/clip.h"
#include "trace/stream.h"

namespace plimsoll {

class ShardedModel : public ModuleHooks {
 public:
  // What the optimizer is given.
  virtual const std::vector<Parameter*>& parameters() const = 0;
  // `sync`: the backward of this forward reduces gradients.
  virtual Output forward(const Batch& batch, bool sync) = 0;
  // At the end of every backward.
  virtual void after_backward() = 0;
  // Clips the norm of all ranks' gradients; false: it has no way of its own.
  virtual bool clip() { return false; }
  // What its shards are spread over, for clip_grad_norm.
  virtual ClipMesh mesh() const { return {}; }
  // Shards, gradients and the update are on the host.
  virtual bool on_host() const { return false; }
};

// While it lives, what is allocated is of this kind and belongs to that module.
class Labelled {
 public:
  Labelled(Tape& tape, Category category, ScopeId scope) : tape_(tape), scope_(tape, scope), outer_(tape.category) {
    tape.category = category;
  }
  ~Labelled() { tape_.category = outer_; }
  Labelled(const Labelled&) = delete;
  Labelled& operator=(const Labelled&) = delete;

 private:
  Tape& tape_;
  ScopeGuard scope_;
  std::optional<Category> outer_;
};

std::optional<DType> type_of(WireType t);
int64_t ceil_div(int64_t a, int64_t b);

// A ModuleList or a Sequential: its children's names are numbers.
bool is_list(const Module& m);

// `t`, which was made just now, comes from the pool of that stream.
Tensor from_pool(Stream stream, Tensor t);

// storage.resize_(bytes) and storage.resize_(0): tensors that share the storage stay.
void resize_up(Tape& tape, Storage& s, int64_t bytes);
void resize_to_nothing(Tape& tape, Storage& s);

// t.data = other: the tensor stays, what it looks at changes.
void look_at(Tensor& t, const Ref<Storage>& storage, const Dims& sizes, DType dtype);

// _cast_forward_inputs: floating-point tensors of another type.
Tensors cast_inputs(Tensors inputs, DType dtype);
Batch cast_inputs(const Batch& batch, DType dtype);

// Tensor.register_hook, as a node that passes the gradient on.
Tensor with_gradient_hook(const Tensor& output, const std::function<void()>& hook);

}  // namespace plimsoll
