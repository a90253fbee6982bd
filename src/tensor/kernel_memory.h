// Memory that kernels take from the allocator without the program asking for it. The recorder's device has none: its kernels
// do nothing.
#pragma once

#include <cstdint>

#include "job/platform.h"

namespace plimsoll {

struct KernelMemory {
  int64_t blas = 0;            // cuBLAS workspace, one a thread (forward, backward), kept for ever
  int64_t blas_lt = 0;         // cuBLASLt workspace of products with a bias, one a thread
  bool keeps_blas_lt = false;  // kept for ever, or given back after each call
  bool scratch = false;        // buffers of single kernels: attention's backward, the sort in embedding's backward
};

// What PyTorch does on a real device of this kind.
KernelMemory kernel_memory(const Platform& platform);

}  // namespace plimsoll
