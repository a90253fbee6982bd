#include "report/counters.h"

#include <algorithm>
#include <array>

namespace plimsoll {

namespace {

constexpr const char *kCudaAllocated = "torch.cuda.max_memory_allocated()", *kCudaReserved = "torch.cuda.max_memory_reserved()";
constexpr const char* kMetal =
    "Metal: PyTorch's MPS allocator and kernels are not simulated. The figures are those of the CUDA allocator and its kernels, without a "
    "context; what Metal keeps beside them is not established.";

// AMD's PyTorch has the names of CUDA. Of Metal PyTorch counts no peak: these are its counters, read at the peak.
constexpr std::array kPyTorch{
    Counters{"NVIDIA", kCudaAllocated, kCudaReserved, "nvidia-smi", "an NVIDIA card", ""},
    Counters{"AMD", "torch.cuda.max_memory_allocated() (HIP)", "torch.cuda.max_memory_reserved() (HIP)", "rocm-smi", "an AMD card", ""},
    Counters{"Apple", "torch.mps.current_allocated_memory()", "torch.mps.driver_allocated_memory()",
             "of torch.mps.recommended_max_memory()", "an Apple GPU", kMetal},
    Counters{"Intel", "torch.xpu.max_memory_allocated()", "torch.xpu.max_memory_reserved()", "xpu-smi", "an Intel GPU", ""},
    Counters{"Google", "tensors in blocks of 512 bytes", "the same in segments", "the device", "a TPU",
             "PyTorch/XLA's allocator is not simulated; --framework jax is."}};

constexpr const char *kJaxPeak = "device.memory_stats()['peak_bytes_in_use']", *kJaxPool = "device.memory_stats()['pool_bytes']";
constexpr std::array kJax{Counters{"NVIDIA", kJaxPeak, kJaxPool, "peak_bytes_in_use + context", "an NVIDIA card", ""},
                          Counters{"AMD", kJaxPeak, kJaxPool, "peak_bytes_in_use + context", "an AMD card", ""},
                          Counters{"Google", kJaxPeak, "the same: no pool", "peak_bytes_in_use + runtime", "a TPU", ""}};

template <class Table>
const Counters& row_of(const Table& table, const std::string& vendor) {
  const auto it = std::find_if(table.begin(), table.end(), [&](const Counters& c) { return vendor == c.vendor; });
  return it == table.end() ? table.front() : *it;
}

}  // namespace

const Counters& counters_of(const std::string& vendor, bool jax) { return jax ? row_of(kJax, vendor) : row_of(kPyTorch, vendor); }

const Counters& counters_of(const Estimate& e) {
  if (e.xla && e.xla->program.device == DeviceKind::tpu) return counters_of("Google", true);
  return counters_of(e.vendor, e.xla.has_value());
}

}  // namespace plimsoll
