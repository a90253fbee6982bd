// What a wrapper does before and after a module's forward, as hooks of nn.Module do: fully_shard. The wrapper itself is in step/.
#pragma once

#include <functional>

#include "tensor/tensor.h"

namespace plimsoll {

class Module;

class ModuleHooks {
 public:
  virtual ~ModuleHooks() = default;
  virtual bool wraps(const Module& module) const = 0;
  // Whether a checkpoint is inside the hooks, as torchtitan's checkpoint_wrapper is, or around them, as transformers' is.
  virtual bool outside_checkpoints() const = 0;
  // May replace what the module is called with, and what it returns. Undefined tensors are arguments that are None.
  virtual Tensors before_forward(const Module& module, Tensors inputs) = 0;
  virtual Tensors after_forward(const Module& module, Tensors outputs) = 0;
  // Whether it wraps this layer, which is a part of a block.
  virtual bool wraps_layer(const Module&) const { return false; }
  // torch.nn.functional.linear is DeepSpeed's (linear_function of ops/matmul.h).
  virtual bool replaces_linear() const { return false; }
  // Around a module that is a function or a part of `owner` here: an activation of transformers', a layer of PEFT's with its adapter.
  virtual Tensor before_function(const Module&, Tensor x) { return x; }
  virtual Tensor after_function(const Module&, Tensor out) { return out; }
};

// `run(inputs)` is the module's forward.
Tensors call_with_hooks(const Module& module, const std::function<Tensors(const Tensors&)>& run, const Tensors& inputs);

}  // namespace plimsoll
