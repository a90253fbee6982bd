// What the engines of DeepSpeed's ZeRO share: numbers on the device, the scale of the loss and of the gradients.
#pragma once

#include <functional>

#include "tensor/node.h"

namespace plimsoll {

// A tensor without dimensions; that of optim/foreach.h is in float32.
Tensor device_scalar(const char* op, DType dtype, Tape& tape);

// mask_nan_or_inf_with_val_inplace
void mask_infinite(const Tensor& number);

// DeepSpeedEngine.backward: a hook on the loss divides its gradient by the micro-steps; `begin` runs after that.
Tensor scaled_loss(const Tensor& loss, std::function<void()> begin);

// unscale_and_clip_grads with a norm of this type. Gradients are always clipped: gradient_clipping is 1 by default.
void unscale_and_clip(DType norm, Tape& tape);

}  // namespace plimsoll
