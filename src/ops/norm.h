// Normalisation layers that run as one kernel. RMS norms written out in Python are written out in nn/ too.
#pragma once

#include "tensor/node.h"

namespace plimsoll {

Tensor layer_norm(const Tensor& x, int normalized_dims, const Tensor& weight, const Tensor& bias);
Tensor rms_norm(const Tensor& x, const Tensor& weight);  // over the last dimension; torch.nn.RMSNorm
Tensor group_norm(const Tensor& x, int64_t groups, const Tensor& weight, const Tensor& bias);
// Every channel of every sample by itself, with the statistics of its own pixels in evaluation too; without weights. x: (N, C, H, W).
Tensor instance_norm(const Tensor& x);
// w = g * v / |v|, the norm over all dimensions but the last, in one kernel: torch._weight_norm with dim = v.dim() - 1.
Tensor weight_norm(const Tensor& v, const Tensor& g);
struct RunningStatistics {
  Tensor mean, var;
};
// Training: statistics of the batch; the running ones are kept for backward all the same.
Tensor batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, const RunningStatistics& running);

}  // namespace plimsoll
