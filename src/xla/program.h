// A train step as XLA sees it: one program of ops in the order they run. Its arguments are the state and the batch, its
// outputs the new state and the loss. What is fused, what needs memory and for how long is decided later (fusion.h, liveness.h).
#pragma once

#include <vector>

#include "tensor/dims.h"
#include "tensor/dtype.h"
#include "trace/trace.h"
#include "xla/op_rules.h"

namespace plimsoll {

using OpId = uint32_t;  // index into XlaProgram::ops; 0 is none

enum class OpKind : uint8_t {
  argument,
  view,         // reshape and transpose: a bitcast, or a layout its neighbour takes
  elementwise,  // also slices, pads, broadcasts, concatenations, constants: whatever a loop over the result computes
  reduction,    // has memory; what it reads may be computed inside it
  dot,          // also convolutions
  opaque,       // gather, scatter, random bits, custom calls, collectives: reads and writes memory
};

struct XlaOp {
  OpKind kind = OpKind::elementwise;
  DerivativeRule rule = DerivativeRule::linear;
  Phase phase = Phase::forward;
  Category category = Category::activation;
  DType dtype = DType::float32;
  bool needs_gradient = false;
  bool in_place = false;  // an opaque op that may write over what it reads (a collective)
  const char* name = "";
  ScopeId scope = 0;
  uint32_t block = 0;  // checkpointed block; 0: outside
  Dims sizes;
  std::vector<OpId> operands;
  std::vector<OpId> also;  // what the same op computes beside its result and its derivative reads: statistics, a mask
};

struct XlaOutput {
  OpId op = 0;
  OpId replaces = 0;  // the argument whose next value it is; 0: none
};

struct XlaProgram {
  std::vector<XlaOp> ops{XlaOp{}};
  std::vector<OpId> arguments;
  std::vector<XlaOutput> outputs;
  std::vector<bool> used;  // by op: an output needs it; filled by remove_unused
};

void remove_unused(XlaProgram& program);

}  // namespace plimsoll
