// DeepSpeed's ZeRO stages 1 and 2 on one rank (deepspeed/runtime/zero/stage_1_and_2.py of 0.19): all weights are views of one flat tensor, of
// which this rank updates its part in fp32; gradients go through a bucket of a fixed size, and what is not this rank's is let go of.
// step/deepspeed3.h is stage 3. Names are those of the Python code.
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
  // `boundary`: an update follows.
  virtual void before_backward(bool boundary) = 0;
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

// scaled_global_norm and unscale_and_clip_grads on gradients that are no longer needed in another form.
void norm_of_partition(const Tensors& gradients, Tape& tape);
void unscale_and_clip(bool clips, Tape& tape);
// has_overflow: whether a gradient has a value that is not finite, as fp16's loss scaling wants to know.
void check_overflow(const Tensors& gradients, Tape& tape);

}  // namespace plimsoll
