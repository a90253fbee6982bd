// From a fused program to its buffers: what each takes and from which op to which it is needed. Order of time is order of ops.
#pragma once

#include "job/jax_settings.h"
#include "xla/fusion.h"
#include "xla/tile_padding.h"

namespace plimsoll {

struct XlaBuffer {
  OpId op = 0;
  int64_t bytes = 0;
  OpId begin = 0, end = 0;  // written by the first, read for the last time by the second
};

struct XlaBuffers {
  std::vector<XlaBuffer> arguments, outputs, temporaries;           // outputs: those that take no argument's place
  int64_t argument_bytes = 0, output_bytes = 0, aliased_bytes = 0;  // as memory_analysis() counts: outputs with what is aliased
};

// With `donate`, outputs that replace an argument are written into it.
XlaBuffers buffers_of(const XlaProgram& program, const Fusion& fusion, bool donate, DeviceKind device, TileRows rows);

// The most that is alive at once.
int64_t peak_of(const std::vector<XlaBuffer>& buffers);

}  // namespace plimsoll
