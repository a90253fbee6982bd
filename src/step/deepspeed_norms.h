// What the engines of DeepSpeed's ZeRO share: numbers on the device, the scale of the loss and of the gradients.
#pragma once

#include <functional>

#include "tensor/node.h"

namespace plimsoll {

// A tensor without dimensions.
Tensor scalar(const char* op, DType dtype, Tape& tape);

// DeepSpeedEngine.backward: a hook on the loss divides its gradient by the micro-steps; `begin` runs after that.
Tensor scaled_loss(const Tensor& loss, std::function<void()> begin);

// unscale_and_clip_grads with a norm of this type: without clipping the scale is a number of Python's.
void unscale_and_clip(bool clips, DType norm, Tape& tape);

}  // namespace plimsoll
