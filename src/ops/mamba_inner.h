// mamba_inner_fn of mamba-ssm 2 (ops/selective_scan_interface.py, csrc/selective_scan.cpp) with causal-conv1d 1.6: convolution,
// projections, selective scan and gate of a Mamba layer as one autograd function on CUDA. What it allocates is read from that source,
// not recorded.
#pragma once

#include "tensor/node.h"

namespace plimsoll {

struct MambaInnerArgs {
  Tensor xz;                              // (B, 2 I, T): what is convolved, and the gate
  Tensor conv1d_weight, conv1d_bias;      // (I, 1, K), (I) or undefined
  Tensor x_proj_weight;                   // (R + 2 S, I)
  Tensor delta_proj_weight;               // (I, R)
  Tensor out_proj_weight, out_proj_bias;  // (C, I), (C) or undefined
  Tensor A, D, delta_bias;                // (I, S), (I), (I) in fp32
};

// The convolution's result and the time steps are not kept but computed again in backward (checkpoint_lvl 1).
Tensor mamba_inner(const MambaInnerArgs& args);  // (B, T, C)

}  // namespace plimsoll
