// The parameters of DeepSpeed's ZeRO stage 3 on one rank (partition_parameters.py, partitioned_param_coordinator.py and
// parameter_offload.py of 0.19): each is cut into equal parts, gathered before a layer that has it runs, forward and backward, and let go
// of afterwards. The first micro-step is recorded; from the second on the next parameters are gathered ahead. Names are those of the Python
// code.
#pragma once

#include <deque>
#include <memory>
#include <set>
#include <unordered_map>

#include "job/deepspeed.h"
#include "nn/model.h"
#include "nn/module_hooks.h"

namespace plimsoll {

class PartitionedParameters final : public ModuleHooks {
 public:
  // `model` was built on meta.
  PartitionedParameters(const DeepSpeedSettings& settings, Model& model);

  // Elements of each rank's part of it, and those that this rank's part has without the padding.
  int64_t partition(const Parameter& p) const { return of_.at(&p)->partition; }
  int64_t filled(const Parameter& p) const;
  // The place of the parameter in the model.
  int64_t id(const Parameter& p) const { return of_.at(&p)->id; }
  Bytes bytes_on_host() const;

  void begin_forward();      // _start_of_forward_hook
  void begin_backward();     // the gradient of the model's output is there
  void after_backward();     // release_backward_leftovers
  void release_all();        // partition_all_parameters, before the update
  void gather_persistent();  // after the update
  void require_all_called() const;

  bool wraps(const Module& module) const override { return !layers_.at(&module)->parameters.empty(); }
  bool wraps_layer(const Module&) const override { return true; }
  bool replaces_linear() const override { return true; }
  bool outside_checkpoints() const override { return false; }
  Tensors before_forward(const Module& module, Tensors inputs) override;
  Tensors after_forward(const Module& module, Tensors outputs) override;
  Tensor before_function(const Module& owner, Tensor x) override;
  Tensor after_function(const Module& owner, Tensor out) override;

 private:
  enum class Status : uint8_t { partitioned, in_flight, available };
  enum class Trace : uint8_t { invalid, recording, complete };

  // AllGatherCoalescedHandle: lives until every parameter that it is for has been waited for.
  struct Handle;
  struct Layer;
  struct Partitioned {
    Parameter* whole = nullptr;
    ScopeId scope = 0;
    int64_t id = 0, elements = 0, partition = 0;
    bool persists = false;
    DType dtype = DType::float32;
    Tensor part;  // ds_tensor; undefined on the host
    Status status = Status::partitioned;
    std::shared_ptr<Handle> handle;
    std::set<const Layer*> active;  // ds_active_sub_modules
    int64_t fetched_for = 0;        // __most_recent_step_id_param_fetched_for
  };
  struct Handle {
    std::vector<Partitioned*> parameters;
    Tensors flats;  // one for each type; none: a single parameter is gathered in its place
    bool complete = false;
  };
  // A module: one without parameters counts, too, as each call gathers ahead.
  struct Layer {
    const Module* module = nullptr;  // null: one that Python has and the model here has not
    Layer* parent = nullptr;
    bool is_list = false;
    std::vector<Partitioned*> parameters;
    std::set<Partitioned*> recomputed;  // ds_recompute_parameters
    int64_t grads_remaining = 0, pre_backward_calls = 0;
    bool called = false;
  };
  struct Use {
    Partitioned* parameter = nullptr;
    int64_t step = 0;
  };

  void collect(const Module& module, Layer* parent);
  Partitioned& add(Parameter& whole, ScopeId scope);
  void make_parts();
  bool on_host() const { return settings_.offload_param; }  // the parts
  Tensor from_gather_pool(Tensor t) const;

  Tensors begin(Layer& layer, Tensors inputs);
  Tensors end(Layer& layer, Tensors outputs);
  void enter(Layer& layer, bool forward);
  void call(Layer& layer, bool forward);
  Layer& function_of(const Module& owner);
  void record_or_check(Layer& layer);
  void invalidate_trace();
  void clean_in_flight();
  void complete_trace();
  void fetch(Layer& layer, bool forward);
  void prefetch(const Layer& layer);
  void all_gather(std::vector<Partitioned*> parameters);
  void make_whole(Partitioned& p, int64_t elements, bool own_pool);
  void gather_in_place(Partitioned& p, bool own_pool);
  void gather_together(Handle& handle);
  void wait(Partitioned& p);
  void materialise(Handle& handle);
  void release(Layer& layer, bool forward);
  std::set<const Partitioned*> releasable(const Layer& layer) const;
  void release(Partitioned& p);
  void pre_backward(Layer& layer);
  void post_backward(Layer& layer);

  DeepSpeedSettings settings_;
  Tape& tape_;
  std::deque<Partitioned> parameters_;  // in the model's order
  std::unordered_map<const Parameter*, Partitioned*> of_;
  std::deque<Layer> order_of_layers_;
  std::unordered_map<const Module*, Layer*> layers_;
  std::unordered_map<const Module*, Layer> functions_;
  Layer* root_ = nullptr;
  std::vector<Layer*> entered_, left_;  // where the last call was, from the root on: forward and backward
  Tensor flat_;                         // all parts of trained parameters
  std::vector<Partitioned*> persistent_;

  Trace trace_ = Trace::invalid;
  std::vector<Layer*> module_order_;
  std::vector<Use> use_order_;
  std::deque<Use> queue_;
  std::vector<Partitioned*> in_flight_;
  std::vector<Layer*> active_backward_;  // in the order of their fetches
  int64_t step_ = 0, available_ = 0;     // available_: elements
};

}  // namespace plimsoll
