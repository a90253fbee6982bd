// DeepSpeed's ZeRO stages 1 and 2 on one rank (deepspeed/runtime/zero/stage_1_and_2.py of 0.19): all weights are views of one flat tensor,
// of which this rank updates its part in fp32; gradients go through a bucket of a fixed size, and what is not this rank's is let go of.
// Names are those of the Python code.
#pragma once

#include <memory>

#include "job/deepspeed.h"
#include "job/job.h"
#include "optim/optimizer.h"

namespace plimsoll {

// What the training loop asks of DeepSpeed's engine.
class DeepSpeedEngine {
 public:
  virtual ~DeepSpeedEngine() = default;
  // The loss that backward starts from. `boundary`: an update follows.
  virtual Tensor before_backward(const Tensor& loss, bool boundary) = 0;
  virtual void after_backward() = 0;
  // Norm, clipping, update, and the weights' new values.
  virtual void step() = 0;
  virtual Tensors states() const = 0;
  virtual Bytes on_host() const = 0;
};

// `trained` are the model's parameters that want gradients; those that arrive while the engine lives are its.
std::unique_ptr<DeepSpeedEngine> make_zero_1_2(const Job& job, Tape& tape, const std::vector<Parameter*>& trained);

// Throws for what DeepSpeed refuses or what is not simulated with it.
void check_deepspeed(const Job& job);

}  // namespace plimsoll
