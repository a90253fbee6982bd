// torch.optim: what each optimizer keeps between steps and the temporaries of one step. The default on CUDA is the foreach
// form (temporaries for all parameters at once); `foreach: false` is the loop, `fused: true` has no temporaries.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "job/config.h"
#include "tensor/node.h"

namespace plimsoll {

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // Updates every parameter that has a gradient.
  virtual void step(const std::vector<Parameter*>& parameters) = 0;
  // What the optimizer keeps between steps, to be labelled after a step.
  virtual std::vector<Tensor> states() const = 0;
};

struct OptimizerEntry {
  const char* name;
  const char* keeps;  // for `plimsoll list optimizers`
  std::function<std::unique_ptr<Optimizer>(const Config& args)> make;
};

const std::vector<OptimizerEntry>& optimizer_registry();
std::unique_ptr<Optimizer> make_optimizer(const std::string& name, const Config& args);

// ---- for the optimizers' own files ------------------------------------------------------------------------------------
std::vector<Parameter*> with_gradients(const std::vector<Parameter*>& parameters);
Tensor zeros_like(const Tensor& t);
Tensor scalar_zeros(Tape& tape, DType dtype);
// One result per tensor, as a _foreach op makes it.
Tensors foreach(const char* op, const Tensors& like);
Tensor temporary(const char* op, const Tensor& like);

}  // namespace plimsoll
