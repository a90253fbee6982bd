// Activation checkpointing as torch.utils.checkpoint does it. Without reentrant autograd the forward keeps tickets instead of
// tensors; the first ticket that is cashed in runs the block again, stops as soon as every ticket has its tensor, and each
// tensor is handed out once. A selective checkpoint also keeps the results of chosen ops, which are then not computed again.
#pragma once

#include <functional>

#include "tensor/node.h"

namespace plimsoll {

struct CheckpointStyle {
  bool reentrant = false;              // a backward of its own inside the backward
  std::vector<std::string> saved_ops;  // create_selective_checkpoint_contexts: what these return is kept, of "mm/2" every second result
};

class CheckpointFrame {
 public:
  uint32_t refs = 0;
  static void destroy(CheckpointFrame* f) { delete f; }

  CheckpointFrame(Tape& tape, const CheckpointStyle& style, std::function<void()> recompute);
  uint32_t pack();                 // forward: a ticket
  void store(const Tensor& t);     // recomputation: the next tensor, in the order of tickets
  Tensor redeem(uint32_t ticket);  // backward
  void forget(uint32_t ticket);    // the node that held the ticket is gone
  // What an op allocates for its results: kept when forward makes it, and handed out when it is made again. Null: not kept.
  void keep_result(const char* op, const Ref<Storage>& result);
  Ref<Storage> kept_result(const char* op);

 private:
  bool keeps(const char* op) const;
  void recompute();

  Tape& tape_;
  const CheckpointStyle& style_;
  std::function<void()> recompute_;  // captures the block's inputs: that is what a checkpoint keeps
  std::optional<DType> autocast_;
  ScopeId scope_;
  bool recomputed_ = false;
  std::vector<bool> alive_;
  Tensors stored_;
  size_t next_ = 0;
  std::vector<Ref<Storage>> results_;  // of the ops that are kept, in their order
  size_t next_result_ = 0;
};

// Runs `block(inputs)` under a checkpoint. `inputs` are what Python passes by position; what else the block uses must be
// captured by value. `style` must outlive the graph.
Tensors checkpoint(Tape& tape, const CheckpointStyle& style, std::function<Tensors(const Tensors&)> block, const Tensors& inputs);
Tensor checkpoint(Tape& tape, const CheckpointStyle& style, std::function<Tensor(const Tensor&)> block, const Tensor& input);

}  // namespace plimsoll
