// The optimizer in backward: one optimizer for each parameter, stepped by a hook as soon as its gradient is accumulated, which is then
// dropped (PyTorch's tutorial on register_post_accumulate_grad_hook; torchtune's optimizer_in_bwd). Gradients never exist together.
// LOMO does it a parameter late: its hook, on the gradient that arrives, updates what has one already.
#pragma once

#include <map>
#include <memory>

#include "job/job.h"
#include "optim/optimizer.h"

namespace plimsoll {

// LOMO and AdaLomo have no other way.
bool is_lomo(const std::string& optimizer);
// It is asked for, or the optimizer has no other way.
bool steps_in_backward(const Job& job);
// What needs all gradients at once, or more than one backward a step.
void check_step_in_backward(const Job& job, Problems& out);

class StepInBackward {
 public:
  // Gradients that arrive while this object lives are stepped.
  StepInBackward(const OptimizerSpec& spec, Tape& tape, const std::vector<Parameter*>& trained,
                 const std::vector<LinearWeight>& linear_layers);
  ~StepInBackward();
  StepInBackward(const StepInBackward&) = delete;
  StepInBackward& operator=(const StepInBackward&) = delete;

  // The end of backward: a last gradient that still waits is stepped.
  void finish();
  Tensors states() const;
  Bytes managed() const;
  Bytes on_host() const;

 private:
  struct One {
    std::vector<Parameter*> parameter;  // of one
    std::unique_ptr<Optimizer> optimizer;
  };
  void step(Parameter& p);

  Tape& tape_;
  Parameter* waiting_ = nullptr;  // LOMO's: has a gradient, and the next one has not come
  std::map<const Parameter*, One> each_;
};

}  // namespace plimsoll
