// Optimizers of torch.optim and of other libraries: what each keeps between steps and the temporaries of one step. The default of
// torch.optim on CUDA is the foreach form (temporaries for all parameters at once); `foreach: false` is the loop, `fused: true` has no
// temporaries.
#pragma once

#include <memory>
#include <vector>

#include "job/config.h"
#include "optim/entry.h"
#include "tensor/node.h"
#include "util/bytes.h"

namespace plimsoll {

// The weight of a torch.nn.Linear that is a parameter of its own.
struct LinearWeight {
  std::string module;  // "model.layers.0.mlp.up_proj"
  const Parameter* weight = nullptr;
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // For those that treat linear layers apart; called once, before attach.
  virtual void know_linear_layers(const std::vector<LinearWeight>&) {}
  // The constructor's own allocations; called once, with the parameters that every later step gets.
  virtual void attach(const std::vector<Parameter*>&) {}
  // Updates every parameter that has a gradient.
  virtual void step(const std::vector<Parameter*>& parameters) = 0;
  // What the optimizer keeps between steps, to be labelled after a step.
  virtual Tensors states() const = 0;
  // States in CUDA managed memory: not the allocator's; on the device as much as fits, the rest in RAM.
  virtual Bytes managed() const { return {}; }
  // States in the host's memory.
  virtual Bytes on_host() const { return {}; }
  // Fused kernels unscale gradients themselves (`_step_supports_amp_scaling`); a GradScaler then does not.
  virtual bool supports_amp_scaling() const { return false; }
};

// By the name in a job, in any case, with or without its library.
std::unique_ptr<Optimizer> make_optimizer(const std::string& name, const Config& args);
std::unique_ptr<Optimizer> make_optimizer(const OptimizerEntry& entry, const Config& args);

}  // namespace plimsoll
