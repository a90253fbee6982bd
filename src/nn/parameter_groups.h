// What a trainer gives its optimizer where that is not simply everything that is trained: a model may implement it beside Model.
#pragma once

#include <vector>

#include "tensor/node.h"

namespace plimsoll {

struct ParameterGroups {
  std::vector<std::vector<Parameter*>> lists;  // updated one after the other; empty: all that are trained are one group
  bool clipped_apart = false;                  // each by the norm of its own gradients
};

class GroupsParameters {
 public:
  virtual ~GroupsParameters() = default;
  // What requires a gradient and is in no group keeps it: nobody updates it, nor resets it.
  virtual ParameterGroups parameter_groups() const = 0;
};

}  // namespace plimsoll
