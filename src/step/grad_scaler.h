// torch.amp.GradScaler and, for flat parameters, ShardedGradScaler, as a loop with fp16 autocast uses them: scale(loss).backward(),
// unscale_ before clipping, step, update. It assumes what nearly every step of a run is: no overflow was found, so the optimizer steps.
#pragma once

#include <vector>

#include "optim/optimizer.h"

namespace plimsoll {

class GradScaler {
 public:
  // What the gradients are that it looks at.
  enum class Gradients : uint8_t {
    plain,
    dtensors,  // each look is agreed on by the ranks, on a copy
    flat,      // of FullyShardedDataParallel: agreed on in place
    on_host,   // the same, and the look is sent to the device to be agreed on
  };
  // `mesh_dims`: how many dimensions of their mesh DTensors are sharded over.
  explicit GradScaler(Gradients gradients = Gradients::plain, int mesh_dims = 1) : gradients_(gradients), mesh_dims_(mesh_dims) {}

  // The scaled loss, with its history.
  Tensor scale(const Tensor& loss);
  void unscale(const std::vector<Parameter*>& parameters);
  void step(Optimizer& optimizer, const std::vector<Parameter*>& parameters);
  void update();

 private:
  void unscale_grads(const std::vector<Parameter*>& parameters, const Tensor& inv_scale, const Tensor& found_inf);

  Gradients gradients_;
  int mesh_dims_;
  Tensor scale_, growth_tracker_;
  Tensor found_inf_;  // found_inf_per_device, which has one device here; from unscale until update
  bool unscaled_ = false;
};

}  // namespace plimsoll
