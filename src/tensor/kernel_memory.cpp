#include "tensor/kernel_memory.h"

namespace plimsoll {

namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

// aten/src/ATen/cuda/CublasHandlePool.cpp, parseChosenWorkspaceSize: ":4096:2:16:8" KiB but on Hopper; 32 MiB on AMD, 128 MiB on
// gfx94x and gfx95x. Before 2.0 cuBLAS kept its own.
int64_t blas_workspace(const Platform& p) {
  if (p.is_amd()) {
    if (p.torch < Version{2, 6}) return 0;
    return p.target.rfind("gfx94", 0) == 0 || p.target.rfind("gfx95", 0) == 0 ? 128 * kMiB : 32 * kMiB;
  }
  if (p.torch < Version{2, 0}) return p.torch < Version{1, 13} ? 0 : 4 * kMiB;
  return p.target == "9.0" ? 32 * kMiB : int64_t{8'519'680};
}

}  // namespace

KernelMemory kernel_memory(const Platform& p) {
  KernelMemory m;
  m.blas = blas_workspace(p);
  m.blas_lt = p.is_amd() ? 76 * kMiB : kMiB;  // _getWorkspaceSize of CUDABlas.cpp
  m.keeps_blas_lt = p.torch >= Version{2, 9};
  m.scratch = true;
  return m;
}

}  // namespace plimsoll
