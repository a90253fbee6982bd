// torch.distributed.fsdp.FullyShardedDataParallel on one rank (FlatParamHandle, _runtime_utils.py of PyTorch 2.14): the parameters of each
// wrapped module, and of the rest of the model, are views of one flat tensor that is gathered before it is needed. A flat parameter looks
// at its shard or at the whole, as in PyTorch; gradients are of the whole and become shards. Names are those of the Python code.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <unordered_map>

#include "job/fsdp1.h"
#include "step/sharded_model.h"

namespace plimsoll {

class FullyShardedDataParallel final : public ShardedModel {
 public:
  // `model` was built on meta; `wrapped` are the modules below it that have flat parameters of their own. Gradients that arrive while this
  // object lives are its.
  FullyShardedDataParallel(const Fsdp1Settings& settings, Model& model, const std::vector<const Module*>& wrapped);
  ~FullyShardedDataParallel() override;

  // Flat shards, or the parts of the model's parameters that are in them.
  const std::vector<Parameter*>& parameters() const override { return parameters_; }
  Output forward(const Batch& batch, bool sync) override;
  void after_backward() override;
  bool clip() override;
  bool on_host() const override { return settings_.offload; }

  bool wraps(const Module& module) const override { return handle_of_.contains(&module); }
  bool outside_checkpoints() const override { return !checkpoint_outside_; }
  Tensors before_forward(const Module& module, Tensors inputs) override;
  Tensors after_forward(const Module& module, Tensors outputs) override;

 private:
  enum class State : uint8_t { idle, forward, backward_pre, backward_post };
  using TensorHooks = std::vector<std::function<void()>>;

  struct Piece {
    Parameter* whole = nullptr;  // none: padding
    int64_t elements = 0;
    Parameter part;  // of the shard, when the optimizer sees original parameters
  };

  // FlatParamHandle
  struct Handle {
    const Module* module = nullptr;
    std::deque<Piece> pieces;
    Parameter flat;
    int64_t elements = 0, shard_elements = 0;
    DType dtype = DType::float32;  // of the shard
    Tensor local_shard;            // undefined on the host
    Tensor whole;                  // _full_param_padded, or _mp_shard when nothing is sharded: memory that comes and goes
    Tensor saved_grad_shard;
    Tensor sharded_grad;  // what the parts' gradients are views of
    State state = State::idle;
    bool ran_pre_backward = false, needs_pre_backward_unshard = false, needs_pre_forward_unshard = true, prefetched = false;
    bool post_backward_called = false, reshard_hook = false, called = false;
    std::vector<Ref<Node>> hooked;  // what the hook on the inputs of a frozen module holds: their nodes, and with a leaf's its gradient
    std::optional<size_t> post_forward_index, pre_forward_index;
  };

  void add_handle(const Module& module);
  void flatten(Handle& h);
  void collect(const Module& module, Handle& h);
  void add_piece(Handle& h, Parameter* whole, int64_t elements) const;
  void make_shard(Handle& h);
  void make_parts(Handle& h);
  void collect_parameters(const Module& module);
  void lazy_init();
  void require_all_called() const;

  DType compute_dtype(const Handle& h) const { return param_dtype_.value_or(h.dtype); }
  DType reduce_dtype(const Handle& h) const { return reduce_dtype_ ? *reduce_dtype_ : compute_dtype(h); }
  bool casts(const Handle& h) const { return compute_dtype(h) != h.dtype; }

  void unshard(Handle& h);
  void use_unsharded_views(Handle& h);
  void reshard(Handle& h, bool free_whole);
  void use_sharded(Handle& h);
  void show_type(Handle& h, DType dtype);
  void prefetch_backward(Handle& h);
  void prefetch_forward(Handle& h);

  void pre_forward(Handle& h);
  void post_forward(Handle& h);
  Tensor register_pre_backward(Handle& h, const Tensor& output);
  Tensor add_hook(const Tensor& input, std::function<void()> hook);
  void register_reshard_only(Handle& h, Tensors& inputs);
  void pre_backward(Handle& h);
  void post_backward(Handle& h);
  void post_backward_reshard(Handle& h);
  void reduce_grad(Handle& h);
  void use_unsharded_grad_views(Handle& h);
  void use_sharded_grad_views(Handle& h);
  void finalize(Handle& h);
  void reset_flat_grads();

  Fsdp1Settings settings_;
  Tape& tape_;
  Model& model_;
  std::optional<DType> param_dtype_, reduce_dtype_;
  std::deque<Handle> handles_;  // the root first
  std::unordered_map<const Module*, Handle*> handle_of_;
  std::unordered_map<const Parameter*, Handle*> flat_of_;
  std::unordered_map<const Parameter*, Piece*> piece_of_;
  std::vector<Parameter*> parameters_;
  std::vector<Handle*> post_forward_order_, pre_forward_order_;
  std::unordered_map<const Node*, std::weak_ptr<TensorHooks>> hooks_of_;  // of outputs, by their nodes; gone with these
  bool initialised_ = false, sync_ = true, first_iteration_ = true;
  bool checkpoint_outside_ = false;
  Tensor zero_scalar_;  // of clip_grad_norm_
};

// The modules that are wrapped below the root: the blocks, and with wrap_trained_layers the layers of adapters.
std::vector<const Module*> modules_to_flatten(const Fsdp1Settings& settings, const Model& model, const std::vector<std::string>& blocks);

}  // namespace plimsoll
