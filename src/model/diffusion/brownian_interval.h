// The noise of a stochastic differential equation (torchsde.BrownianInterval) as tensors of a tape.
#pragma once

#include "model/diffusion/brownian_path.h"
#include "tensor/tape.h"

namespace plimsoll {

class BrownianInterval final : public BrownianPath<Tensor> {
 public:
  BrownianInterval(Tape& tape, double t0, double t1, const Dims& size, DType dtype);

 private:
  Tensor halved(const Interval& half, const Tensor& whole) override;
  Tensor sum(const Tensor& a, const Tensor& b) override;
  Tensor noise();

  Tape& tape_;
  Dims size_;
  DType dtype_;
};

}  // namespace plimsoll
