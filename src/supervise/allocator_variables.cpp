#include "supervise/allocator_variables.h"

namespace plimsoll {

// Up to 2.8 PyTorch reads PYTORCH_CUDA_ALLOC_CONF, then PYTORCH_HIP_ALLOC_CONF on ROCm. From 2.9 on there is PYTORCH_ALLOC_CONF, too: first
// in some versions, last in others (CUDAAllocatorConfig::instance). So each that is set is set, and the oldest name always.
std::map<std::string, std::string> with_expandable_segments(const std::map<std::string, std::string>& environment) {
  constexpr const char* kOldest = "PYTORCH_CUDA_ALLOC_CONF";
  constexpr const char* kExpandable = "expandable_segments:True";
  std::map<std::string, std::string> out;
  std::string first;
  for (const char* name : {kOldest, "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF"}) {
    const auto set = environment.find(name);
    if (set == environment.end() || set->second.empty()) continue;
    if (set->second.find("expandable_segments") != std::string::npos) return {};
    out[name] = set->second + "," + kExpandable;
    if (first.empty()) first = out[name];
  }
  if (!out.contains(kOldest)) out[kOldest] = first.empty() ? kExpandable : first;
  return out;
}

}  // namespace plimsoll
