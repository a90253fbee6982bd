// Activation checkpointing as torch.utils.checkpoint does it without reentrant autograd: the forward keeps tickets instead
// of tensors; the first ticket that is cashed in runs the block again, stops as soon as every ticket has its tensor, and
// each tensor is handed out once.
#pragma once

#include <functional>

#include "tensor/node.h"

namespace plimsoll {

class CheckpointFrame {
 public:
  uint32_t refs = 0;
  static void destroy(CheckpointFrame* f) { delete f; }

  CheckpointFrame(Tape& tape, std::function<void()> recompute);
  uint32_t pack();                 // forward: a ticket
  void store(const Tensor& t);     // recomputation: the next tensor, in the order of tickets
  Tensor redeem(uint32_t ticket);  // backward
  void forget(uint32_t ticket);    // the node that held the ticket is gone

 private:
  void recompute();

  Tape& tape_;
  std::function<void()> recompute_;  // captures the block's inputs: that is what a checkpoint keeps
  std::optional<DType> autocast_;
  ScopeId scope_;
  bool recomputed_ = false;
  std::vector<bool> alive_;
  Tensors stored_;
  size_t next_ = 0;
};

// Runs `block(input)` under a checkpoint. Everything else the block uses must be captured by value in `block`.
Tensor checkpoint(Tape& tape, std::function<Tensor(const Tensor&)> block, const Tensor& input);
// The same for a block of several inputs and results: all of its inputs are captured by value.
Tensors checkpoint(Tape& tape, std::function<Tensors()> block);

}  // namespace plimsoll
