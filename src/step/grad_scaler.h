// torch.amp.GradScaler, as a loop with fp16 autocast uses it: scale(loss).backward(), unscale_ before clipping, step, update.
// It assumes what nearly every step of a run is: no overflow was found, so the optimizer steps.
#pragma once

#include <vector>

#include "optim/optimizer.h"

namespace plimsoll {

class GradScaler {
 public:
  // The scaled loss, with its history.
  Tensor scale(const Tensor& loss);
  void unscale(const std::vector<Parameter*>& parameters);
  void step(Optimizer& optimizer, const std::vector<Parameter*>& parameters);
  void update();

 private:
  void unscale_grads(const std::vector<Parameter*>& parameters, const Tensor& inv_scale, const Tensor& found_inf);

  Tensor scale_, growth_tracker_;
  Tensor found_inf_;  // found_inf_per_device, which has one device here; from unscale until update
};

}  // namespace plimsoll
