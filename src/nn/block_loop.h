// The loop over blocks that return their attention weights beside the hidden states: Python keeps what a block returned until the
// next one has returned, and the last one's until the body does.
#pragma once

#include "nn/module.h"

namespace plimsoll {

// `run(block, hidden)` gives {hidden states, weights}; what it uses beside them must be captured by value. `outputs` is the
// caller's, so that the last block's stay.
template <class Block, class Run>
Tensor run_blocks(ModuleList<Block>& blocks, Tensor hidden, Tensors& outputs, const Run& run) {
  for (Block& block : blocks) {
    const auto call = [&block, run](const Tensors& in) { return run(block, in[0]); };
    outputs = run_block(block, call, Tensors{hidden});
    hidden = outputs[0];
  }
  return hidden;
}

}  // namespace plimsoll
