// torchao's CPUOffloadOptimizer: each parameter of 4,096 elements and more has a pinned copy and a pinned gradient on the host, where it is
// updated; smaller ones are updated on the device. Gradients go over as they are accumulated, and may then leave the device.
#pragma once

#include "job/job.h"
#include "optim/optimizer.h"

namespace plimsoll {

// What an optimizer keeps for these parameters, found by one step beside the run.
Bytes states_of(const OptimizerSpec& spec, const std::vector<Parameter*>& parameters);
// What the library refuses or would silently get wrong, with what is possible instead.
void check_offloaded_optimizer(const Job& job, Problems& out);

class OffloadedOptimizer : public Optimizer {
 public:
  OffloadedOptimizer(const OptimizerSpec& spec, bool gradients, Tape& tape);
  ~OffloadedOptimizer() override;

  void attach(const std::vector<Parameter*>& parameters) override;
  void step(const std::vector<Parameter*>& parameters) override;
  Tensors states() const override { return on_device_->states(); }
  Bytes on_host() const override { return on_host_; }  // copies, gradients and states

 private:
  OptimizerSpec spec_;
  bool gradients_;
  Tape& tape_;
  std::unique_ptr<Optimizer> on_device_;  // of the small ones
  std::vector<Parameter*> small_;
  Bytes on_host_;
};

}  // namespace plimsoll
