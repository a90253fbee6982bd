// Normalisation layers that run as one kernel. RMS norms written out in Python are written out in nn/ too.
#pragma once

#include "tensor/node.h"

namespace plimsoll {

Tensor layer_norm(const Tensor& x, int normalized_dims, const Tensor& weight, const Tensor& bias);
Tensor rms_norm(const Tensor& x, const Tensor& weight);  // over the last dimension; torch.nn.RMSNorm
Tensor group_norm(const Tensor& x, int64_t groups, const Tensor& weight, const Tensor& bias);
struct RunningStatistics {
  Tensor mean, var;
};
// Training: statistics of the batch; the running ones are kept for backward all the same.
Tensor batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, const RunningStatistics& running);

}  // namespace plimsoll
