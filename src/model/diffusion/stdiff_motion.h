// STDiff's motion model (tde_model): motion features of the observed frames by a convolutional encoder and a GRU, and of the future ones
// by a stochastic differential equation whose drift and diffusion are small convolutional networks.
#pragma once

#include "model/diffusion/sdeint.h"
#include "nn/vision.h"

namespace plimsoll {

struct StdiffMotionOptions {
  int64_t image_channels = 1;
  int64_t model_channels = 64;  // doubled by every halving of the resolution
  int64_t n_downs = 2;
  int64_t n_layers = 2;  // hidden convolutions of drift and diffusion
  double dt = 0.1;       // of an integration step; frames are 1 apart

  int64_t motion_channels() const { return model_channels << n_downs; }
};

class DiffModel : public Module {
 public:
  DiffModel(Module& parent, std::string_view name, const StdiffMotionOptions& options);
  ~DiffModel() override;
  Tensor context_encode(const Tensor& observed);  // (N, To, C, H, W) to (N, M, h, w)
  // The features of `predicted` frames after the last of `observed`: (Tp, N, M, h, w).
  Tensor future_predict(const Tensor& context, int64_t observed, int64_t predicted);

 private:
  struct Parts;
  StdiffMotionOptions options_;
  std::unique_ptr<Parts> parts_;
  std::vector<std::shared_ptr<BrownianInterval>> uncollected_;  // Python's garbage collector seldom comes within a few steps
};

}  // namespace plimsoll
