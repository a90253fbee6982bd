// fp32 copies of half-precision weights, which the optimizer updates and the weights are copied from, as Megatron-LM's
// Float16OptimizerWithFloat16Params does (megatron/core/optimizer/optimizer.py); DeepSpeed's BF16_Optimizer and apex O2 keep the same
// tensors. With fp32 gradients, each gradient is added to a flat fp32 buffer in backward and dropped (Megatron's DDP, main_grad); without,
// the gradients become fp32 one by one before the step. The copies back to the weights are made in place.
#pragma once

#include <deque>

#include "job/job.h"
#include "tensor/node.h"

namespace plimsoll {

// Settings that have no half-precision weights, or do not let them be copied.
void check_master_weights(const Job& job, Problems& out);

class MasterWeights {
 public:
  // With `fp32_gradients`, gradients that arrive while this object lives go into the buffer.
  MasterWeights(bool fp32_gradients, Tape& tape, const std::vector<Parameter*>& trained);
  ~MasterWeights();
  MasterWeights(const MasterWeights&) = delete;
  MasterWeights& operator=(const MasterWeights&) = delete;

  // What the optimizer and clipping work on: a copy for each trained parameter in half precision, the others themselves.
  const std::vector<Parameter*>& parameters() const { return parameters_; }
  // Before clipping: _copy_model_grads_to_main_grads.
  void take_gradients();
  void drop_gradients();

 private:
  struct Pair {
    Parameter* weight;
    Parameter copy;
    Tensor main_grad;  // a view of the buffer; none without
  };
  void make_buffer(Tape& tape);

  Tape& tape_;
  std::deque<Pair> pairs_;
  std::vector<Parameter*> parameters_;
};

}  // namespace plimsoll
