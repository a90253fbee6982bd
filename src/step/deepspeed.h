// DeepSpeed's ZeRO on one rank (deepspeed/runtime/zero of 0.19). Stages 1 and 2 (stage_1_and_2.py): all weights are views of one flat
// tensor, of which this rank updates its part in fp32; gradients go through a bucket of a fixed size, and what is not this rank's is let go
// of. Stage 3 is in zero3.cpp. Names are those of the Python code.
#pragma once

#include <memory>

#include "job/deepspeed.h"
#include "job/job.h"
#include "nn/model.h"
#include "nn/module_hooks.h"
#include "optim/optimizer.h"

namespace plimsoll {

// What the training loop asks of DeepSpeed's engine.
class DeepSpeedEngine {
 public:
  virtual ~DeepSpeedEngine() = default;
  // Around the forwards of modules; null: none.
  virtual ModuleHooks* hooks() { return nullptr; }
  virtual void before_forward() {}
  virtual void after_forward(const Output&) {}
  // The loss that backward starts from. `boundary`: an update follows.
  virtual Tensor before_backward(const Tensor& loss, bool boundary) = 0;
  virtual void after_backward() = 0;
  // Norm, clipping, update, and the weights' new values.
  virtual void step() = 0;
  virtual Tensors states() const = 0;
  virtual Bytes on_host() const = 0;
  // What of a parameter this rank has.
  virtual int64_t elements(const Parameter& p) const { return p.value.numel(); }
};

// `trained` are the model's parameters that want gradients; those that arrive while the engine lives are its. For stage 3 the model was
// built on meta.
std::unique_ptr<DeepSpeedEngine> make_deepspeed(const Job& job, Model& model, const std::vector<Parameter*>& trained);
std::unique_ptr<DeepSpeedEngine> make_zero_3(const Job& job, Model& model, const std::vector<Parameter*>& trained);

// What DeepSpeed refuses, or what is not simulated with it.
void check_deepspeed(const Job& job, Problems& out);

}  // namespace plimsoll
