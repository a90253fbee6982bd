// model.eval() under torch.no_grad(), while it lives.
#pragma once

#include "tensor/tape.h"

namespace plimsoll {

class Inference {
 public:
  explicit Inference(Tape& tape) : tape_(tape), no_grad_(tape, false) { tape.training = false; }
  ~Inference() { tape_.training = true; }
  Inference(const Inference&) = delete;
  Inference& operator=(const Inference&) = delete;

 private:
  Tape& tape_;
  GradGuard no_grad_;
};

}  // namespace plimsoll
