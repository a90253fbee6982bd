// torch.nn.utils.clip_grad_norm_, foreach form; of DTensors, too.
#pragma once

#include <vector>

#include "tensor/node.h"

namespace plimsoll {

// What DTensors are spread over.
struct ClipMesh {
  int dims = 1;
  std::vector<const Parameter*> replicas = {};  // the same on all ranks of a dimension that others are sharded over
};

void clip_grad_norm(const std::vector<Parameter*>& parameters, const ClipMesh& mesh = {});

}  // namespace plimsoll
