// Which values of a program get memory. XLA computes element-wise ops inside the ops that read them; this decides where, in three
// degrees, because the real decision depends on the backend's cost model and changes from version to version.
#pragma once

#include "xla/program.h"

namespace plimsoll {

enum class FusionDegree : uint8_t {
  least,  // only into a single reader: whatever has two readers, or is read by a matrix product, is stored
  usual,  // also into several readers when reading what it is made of costs no more than reading it
  most,   // also into matrix products, when what it is made of is alive anyway
};

struct Fusion {
  std::vector<bool> stored;              // by op: it has memory of its own
  std::vector<std::vector<OpId>> reads;  // by op: the stored values and arguments it reads, itself or through what is fused into it
};

Fusion fuse(const XlaProgram& program, FusionDegree degree);

}  // namespace plimsoll
