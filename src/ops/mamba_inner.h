// The CUDA kernels of Mamba layers: mamba-ssm (ops/selective_scan_interface.py) and causal-conv1d (cpp_functions.py). What their Python
// does is recorded in tests/truth; what their compiled functions allocate is read from csrc/selective_scan/selective_scan.cpp.
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

// mamba_inner_fn: convolution, projections, scan and gate as one autograd function. The convolution's result and the time steps are not
// kept but computed again in backward (checkpoint_lvl 1).
Tensor mamba_inner(const MambaInnerArgs& args);  // (B, T, C)

// One by one, as models call them that do something in between. x: (B, I, T), weight: (I, 1, K), bias: (I) or undefined
Tensor causal_conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias);
struct SelectiveScanArgs {
  Tensor u, delta, z;    // (B, I, T); z: the gate
  Tensor A, B, C;        // (I, S), (B, S, T), (B, S, T)
  Tensor D, delta_bias;  // (I) in fp32
};
Tensor selective_scan(const SelectiveScanArgs& args);  // (B, I, T)

}  // namespace plimsoll
