// Calls of a model's blocks and their parts, each perhaps under a checkpoint, as the job's settings say. A block is what
// transformers' gradient_checkpointing_enable checkpoints; in torchvision's networks, the outermost children of nn.Sequential
// that have children of their own. Parts (an mlp, an attention) are checkpointed only when they are named.
#pragma once

#include <set>

#include "job/checkpointing.h"
#include "nn/module_hooks.h"
#include "tensor/checkpoint.h"

namespace plimsoll {

class Module;

// What is checkpointed in one model.
class CheckpointPlan {
 public:
  CheckpointPlan() = default;
  explicit CheckpointPlan(const Checkpointing& settings)
      : style{settings.reentrant, settings.save}, on_(settings.on), every_(settings.every), names_(settings.modules) {}

  bool on() const { return on_; }
  bool picks(const Module& module, bool is_block);
  // True when modules were named; computing a module's path is expensive.
  bool names_modules() const { return !names_.empty(); }
  // Throws an Error for a name or an op that the model has not, with those that it has. After the first forward.
  void require_all_found(const Trace& trace) const;

  CheckpointStyle style;

 private:
  bool on_ = false;
  int64_t every_ = 1;
  std::vector<std::string> names_;
  std::set<std::string> found_;  // names that picked a module
  std::set<std::string> known_;  // modules that were asked for
  bool has_blocks_ = false;
};

bool checkpoints(const Module& module, bool is_block);
const CheckpointStyle& checkpoint_style(const Module& module);
WorkBlock note_block(const Module& block);  // for the count of work, while it lives
Tensor passed_on(const Module& module);     // position_ids, which its checkpoint keeps alive but does not use

bool is_wrapped(const Module& module);  // by the build's hooks
bool is_wrapped_layer(const Module& layer);
// `run(x)` is the forward of a layer with parameters of its own.
template <class Run>
Tensor run_layer(const Module& layer, const Run& run, const Tensor& x) {
  if (!is_wrapped_layer(layer)) return run(x);
  return call_with_hooks(layer, [&run](const Tensors& in) -> Tensors { return {run(in[0])}; }, {x})[0];
}
Tensor before_function(const Module& owner, const Tensor& x);
Tensor after_function(const Module& owner, Tensor out);
// `run(x)` is what `owner` does as a function of its own.
template <class Run>
Tensor run_function(const Module& owner, const Run& run, const Tensor& x) {
  if (!is_wrapped_layer(owner)) return run(x);
  return after_function(owner, run(before_function(owner, x)));
}
// A block under hooks, and perhaps a checkpoint on their side that they say.
Tensors run_wrapped(const Module& block, std::function<Tensors(const Tensors&)> run, const Tensors& inputs);

// `run(x)` is the block; what else it uses must be captured by value.
template <class Run>
Tensor run_block(const Module& block, const Run& run, const Tensor& x) {
  const WorkBlock noted = note_block(block);
  if (is_wrapped(block)) return noted.returns(run_wrapped(block, [run](const Tensors& in) -> Tensors { return {run(in[0])}; }, {x})[0]);
  return noted.returns(checkpoints(block, true) ? checkpoint(x.tape(), checkpoint_style(block), run, x) : run(x));
}

// A block of several inputs and results: `run(const Tensors&)`.
template <class Run>
Tensors run_block(const Module& block, const Run& run, const Tensors& inputs) {
  const WorkBlock noted = note_block(block);
  if (is_wrapped(block)) return noted.returns(run_wrapped(block, run, inputs));
  return noted.returns(checkpoints(block, true) ? checkpoint(inputs.front().tape(), checkpoint_style(block), run, inputs) : run(inputs));
}

template <class Part>
Tensor run_part(const Part& part, const Tensor& x) {
  if (!checkpoints(part, false)) return part(x);
  return checkpoint(
      x.tape(), checkpoint_style(part), [&part](const Tensor& h) { return part(h); }, x);
}

// An attention, which also returns its weights: part(x, args..., &weights).
template <class Part, class... Args>
Tensor run_attention(const Part& part, const Tensor& x, Tensor* weights, const Args&... args) {
  if (!checkpoints(part, false)) return part(x, args..., weights);
  const auto run = [&part, args..., held = passed_on(part)](const Tensors& in) -> Tensors {
    Tensor w;
    Tensor out = part(in[0], args..., &w);
    return {std::move(out), std::move(w)};
  };
  Tensors out = checkpoint(x.tape(), checkpoint_style(part), run, Tensors{x});
  *weights = std::move(out[1]);
  return std::move(out[0]);
}

}  // namespace plimsoll
