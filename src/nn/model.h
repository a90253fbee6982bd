// What the training step needs of a model: a batch of inputs and a forward that returns the loss and what the caller keeps.
#pragma once

#include <memory>

#include "job/collation.h"
#include "nn/module.h"

namespace plimsoll {

struct Batch {
  Tensor input_ids;            // (B, T) int64
  Tensor pixel_values;         // (B, C, H, W)
  Tensor numbers;              // (B, N)
  Tensor labels;               // (B, T) or (B,), may be input_ids itself
  Tensor pair_labels;          // (B,) beside labels of tokens
  Tensor attention_mask = {};  // (B, T) int64; undefined: none is given
  Tensor position_ids = {};    // (B, T) int64; undefined: the model counts
  BatchShape shape = {};
  Tensors own = {};  // of a model that makes its inputs itself, in the order of its make_inputs
};

struct Output {
  Tensor loss;
  Tensors kept;  // what else the returned object holds: logits, encoder states
};

class Model : public Module {
 public:
  using Module::Module;
  virtual Output forward(const Batch& batch) = 0;
  // For InputKind::own: a batch of samples; `length` is the job's seq, `dtype` that of the weights.
  virtual Tensors make_inputs(int64_t samples, int64_t length, DType dtype) { return {}; }
  // For InputKind::own: one sample in a few words, "5 + 5 frames of 64 x 2048".
  virtual std::string sample(int64_t length) const { return {}; }
  virtual bool uses_cache() const { return true; }  // the class's default of use_cache
  // The loss follows the build's loss settings.
  virtual bool takes_loss_kernels() const { return false; }
};

}  // namespace plimsoll
