// torch.distributed.fsdp.fully_shard on one rank (torch/distributed/fsdp/_fully_shard of PyTorch 2.14): each wrapped module and the root
// have a group of parameters that is gathered before it is needed and resharded after. The modules compute with whole weights whose memory
// comes and goes; the optimizer sees shards. Names are those of the Python code.
#pragma once

#include <deque>
#include <unordered_map>

#include "job/parallel.h"
#include "step/sharded_model.h"

namespace plimsoll {

class FullyShard final : public ShardedModel {
 public:
  // `model` was built on meta; `wrapped` are the modules below it that have groups of their own. Gradients that arrive while this object
  // lives are its.
  FullyShard(const FsdpSettings& settings, Model& model, const std::vector<const Module*>& wrapped);
  ~FullyShard() override;

  // The shards of all parameters, in the order of Module::parameters().
  const std::vector<Parameter*>& parameters() const override { return parameters_; }
  // With tensor parallelism inside, shards are on a mesh of two dimensions.
  ClipMesh mesh() const override { return mesh_; }
  // `sync`: the backward of this forward reduces gradients (set_requires_gradient_sync).
  Output forward(const Batch& batch, bool sync) override;
  // _root_post_backward_final_callback, at the end of every backward.
  void after_backward() override;
  // set_reshard_after_backward: whole weights stay after this object's backwards, as a pipeline wants it.
  void keep_whole(bool keeps) { keeps_whole_ = keeps; }
  // What a pipeline does after its last backward: gradients that stayed whole are reduced, group by group, and weights resharded.
  void reduce_kept();

  bool wraps(const Module& module) const override;
  bool outside_checkpoints() const override { return settings_.checkpoint_inside; }
  Tensors before_forward(const Module& module, Tensors inputs) override;
  Tensors after_forward(const Module& module, Tensors outputs) override;

 private:
  enum class State : uint8_t { idle, forward, pre_backward, post_backward };
  enum class Placement : uint8_t { sharded, sharded_post_forward, unsharded };

  // FSDPParam
  struct Sharded {
    Parameter* whole = nullptr;  // what modules compute with; its memory is all_gather_outputs
    Parameter shard;
    ScopeId scope = 0;
    int64_t padded = 0;   // elements of the padded shard
    bool casts = false;   // gathered in another type than it is kept in
    Tensor post_forward;  // _sharded_post_forward_param_data
    Tensor accumulated;   // unsharded_accumulated_grad
  };

  // FSDPState and its FSDPParamGroup
  struct Group {
    const Module* module = nullptr;
    std::vector<Sharded*> parameters;
    bool reshards = true;
    int64_t reshards_to = 0;  // into groups of so many; 0: into the shards
    State state = State::idle, group_state = State::idle;
    Placement placement = Placement::sharded;
    bool pending = false;  // gathered, but not copied out
    Tensor gathered;       // AllGatherResult
    Tensor all_reduced;    // AllReduceState
    std::vector<size_t> post_forward_indices;
    bool called = false;
  };

  Group& group_of(const Module& module);
  void add_group(const Module& module);
  void collect(const Module& module, Group& group);
  void collect_own(const Module& module, Group& group);
  void require_one_type(const Group& group) const;
  Sharded& shard(Parameter& whole, ScopeId scope);
  void require_all_called() const;

  int64_t gather_size(const Group& g) const;
  int64_t input_elements(const Group& g, const Sharded& p) const;
  void unshard(Group& g);
  void wait_for_unshard(Group& g);
  void copy_out(Group& g);
  void copy_from_shards(Group& g);
  void allocate_whole(Sharded& p) const;
  void reshard(Group& g);
  void to_sharded(Group& g);

  void pad_again();
  Tensors cast(Tensors inputs) const;
  void pre_forward(Group& g);
  void post_forward(Group& g);
  void register_post_backward(Group& g, Tensors& inputs);
  Tensor register_pre_backward(Group& g, const Tensor& output);
  void pre_backward(Group& g);
  void backward_prefetch(Group& g);
  void post_backward(Group& g);
  void keep_whole_gradients(Group& g);
  Tensor as_sharded(const Sharded& p, Tensor grad) const;
  void reduce(Group& g, const std::vector<Sharded*>& with_grad, Tensors& grads);

  FsdpSettings settings_;
  Tape& tape_;
  Model& model_;
  DType compute_dtype_;                // of whole weights
  std::optional<DType> reduce_dtype_;  // none: that of the gradients
  std::deque<Sharded> shards_;
  std::unordered_map<const Parameter*, Sharded*> shard_of_;
  std::deque<Group> groups_;  // the root first
  std::unordered_map<const Module*, Group*> wrapped_;
  std::vector<Parameter*> parameters_;
  ClipMesh mesh_;
  bool sync_ = true, keeps_whole_ = false, padded_again_ = false, root_forward_ = false;
  std::function<void(Parameter&)> outer_hook_;  // of another object, whose parameters are not this one's
  // FSDPCommContext
  Tensor all_gather_state_;
  Tensor reduce_scatter_state_;
  std::vector<Group*> post_forward_order_;
};

// The modules that fully_shard is called on below the root: the blocks that the model runs, or the children of its longest list.
std::vector<const Module*> modules_to_shard(const FsdpSettings& settings, const Model& model, const std::vector<std::string>& blocks);

}  // namespace plimsoll
