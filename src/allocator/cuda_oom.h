// The numbers in PyTorch's out-of-memory message, and the message itself.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace plimsoll {

struct OomNumbers {
  int64_t tried = 0;  // the segment it asked the device for, not the request
  int64_t capacity = 0;
  int64_t device_free = 0;
  int64_t allocated = 0;
  int64_t unallocated = 0;  // reserved but not allocated
  std::optional<int64_t> allowed;
  bool over_an_exabyte = false;  // refused before anything was tried: 2^60 bytes or more
};

// c10's format_size: "512 bytes", "1.00 KiB", "1024.00 MiB" (exactly 1 GiB), "1.25 GiB".
std::string pytorch_size(int64_t bytes);

// "58.00 MiB|100.00 MiB|10.00 MiB|60.86 MiB|19.14 MiB|-": tried, capacity, free, allocated, unallocated, allowed.
std::string printed_sizes(const OomNumbers& oom);

// The text of torch.OutOfMemoryError (2.11), without the list of processes that NVML gives.
std::string oom_message(const OomNumbers& oom, int device = 0);

}  // namespace plimsoll
