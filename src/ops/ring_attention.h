// torch.distributed.tensor.experimental's context parallelism: causal flash attention of this rank's tokens over those of all ranks, whose
// keys and values pass by (_templated_ring_attention of PyTorch 2.14, with load balance). What is simulated is the last rank, which has
// something to compute in every round.
#pragma once

#include "tensor/node.h"

namespace plimsoll {

struct Ring {
  int64_t world = 1;
  bool gathers = true;  // keys and values of all ranks at once, else a round at a time
};

// (B, H, T, D) each, of this rank's part of the tokens, in fp16 or bf16.
Tensor ring_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Ring& ring);

}  // namespace plimsoll
