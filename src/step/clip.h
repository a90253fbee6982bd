// torch.nn.utils.clip_grad_norm_, foreach form; of DTensors, too.
#pragma once

#include <vector>

#include "tensor/node.h"

namespace plimsoll {

void clip_grad_norm(const std::vector<Parameter*>& parameters);

}  // namespace plimsoll
