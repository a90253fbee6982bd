// The optimizer in backward: one optimizer for each parameter, stepped by a hook as soon as its gradient is accumulated, which is then
// dropped (PyTorch's tutorial on register_post_accumulate_grad_hook; torchtune's optimizer_in_bwd). Gradients never exist together.
#pragma once

#include <map>
#include <memory>

#include "job/job.h"
#include "optim/optimizer.h"

namespace plimsoll {

// Throws for what needs all gradients at once, or more than one backward a step.
void check_step_in_backward(const Job& job);

class StepInBackward {
 public:
  // Gradients that arrive while this object lives are stepped.
  StepInBackward(const OptimizerSpec& spec, Tape& tape, const std::vector<Parameter*>& trained);
  ~StepInBackward();
  StepInBackward(const StepInBackward&) = delete;
  StepInBackward& operator=(const StepInBackward&) = delete;

  Tensors states() const;
  Bytes managed() const;

 private:
  struct One {
    std::vector<Parameter*> parameter;  // of one
    std::unique_ptr<Optimizer> optimizer;
  };
  void step(Parameter& p);

  Tape& tape_;
  std::map<const Parameter*, One> each_;
};

}  // namespace plimsoll
