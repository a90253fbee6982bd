#include "allocator/cuda_oom.h"

#include <fmt/format.h>

namespace plimsoll {

std::string pytorch_size(int64_t bytes) {
  constexpr int64_t kKiB = 1024, kMiB = kKiB * 1024, kGiB = kMiB * 1024;
  const double n = static_cast<double>(bytes);
  if (bytes <= kKiB) return fmt::format("{} bytes", bytes);
  if (bytes <= kMiB) return fmt::format("{:.2f} KiB", n / static_cast<double>(kKiB));
  if (bytes <= kGiB) return fmt::format("{:.2f} MiB", n / static_cast<double>(kMiB));
  return fmt::format("{:.2f} GiB", n / static_cast<double>(kGiB));
}

std::string printed_sizes(const OomNumbers& oom) {
  return fmt::format("{}|{}|{}|{}|{}|{}", pytorch_size(oom.tried), pytorch_size(oom.capacity), pytorch_size(oom.device_free),
                     pytorch_size(oom.allocated), pytorch_size(oom.unallocated), oom.allowed ? pytorch_size(*oom.allowed) : "-");
}

std::string oom_message(const OomNumbers& oom, int device) {
  if (oom.over_an_exabyte) return "CUDA out of memory. Tried to allocate more than 1EB memory.";
  return fmt::format(
      "CUDA out of memory. Tried to allocate {}. GPU {} has a total capacity of {} of which {} is free. {}Of the allocated memory {} is "
      "allocated by "
      "PyTorch, and {} is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting "
      "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.",
      pytorch_size(oom.tried), device, pytorch_size(oom.capacity), pytorch_size(oom.device_free),
      oom.allowed ? pytorch_size(*oom.allowed) + " allowed; " : "", pytorch_size(oom.allocated), pytorch_size(oom.unallocated));
}

}  // namespace plimsoll
