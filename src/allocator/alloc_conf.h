// The text of PYTORCH_CUDA_ALLOC_CONF (PYTORCH_ALLOC_CONF) as PyTorch reads it: the same keys, defaults and error wordings,
// from c10/core/AllocatorConfig.{h,cpp} and c10/cuda/CUDAAllocatorConfig.cpp of PyTorch 2.11. Only the reading; what the
// settings do is in cuda_caching.h and pinned_host.h.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace plimsoll {

inline constexpr int64_t kMiB = 1 << 20;
inline constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();
inline constexpr size_t kDivisionIntervals = 16;  // [1 MiB, 2 MiB) .. [32 GiB, ...)

struct AllocConf {
  int64_t max_split_size = kUnlimited;
  int64_t large_segment_size = 20 * kMiB;
  int64_t max_non_split_rounding = 20 * kMiB;           // follows large_segment_size unless given
  std::array<int64_t, kDivisionIntervals> divisions{};  // roundup_power2_divisions per interval; 0 and 1: none
  double garbage_collection_threshold = 0;              // 0: never
  double memory_fraction = 1;                           // per_process_memory_fraction; 1: no limit
  bool expandable_segments = false;
  bool async_backend = false;  // backend:cudaMallocAsync

  // Pinned host memory.
  int64_t pinned_reserve_segment = 0;               // bytes; 0: none
  int64_t pinned_max_round_threshold = kUnlimited;  // larger requests keep their size
  int64_t pinned_max_cached_size = kUnlimited;      // larger blocks are neither rounded nor cached
  int64_t pinned_num_register_threads = 1;

  // Read and checked, not simulated: time, captured graphs, and failing before cudaMalloc is asked.
  bool release_lock_on_cudamalloc = false;
  bool pinned_use_cuda_host_register = false;
  bool pinned_use_background_threads = false;
  bool pinned_free_catch_all = false;
  bool throw_on_cudamalloc_oom = false;
  bool graph_capture_record_stream_reuse = false;

  // Divisions that apply to a request of `bytes` >= 1.
  int64_t divisions_for(int64_t bytes) const;
  bool operator==(const AllocConf&) const = default;
};

// Throws Error with PyTorch's own message for a text that PyTorch refuses.
AllocConf parse_alloc_conf(std::string_view text);

// The text that gives these settings back, without what is a default: "" for the defaults.
std::string alloc_conf_text(const AllocConf& conf);

// Every key PyTorch knows, in alphabetical order.
const std::vector<std::string>& alloc_conf_keys();

}  // namespace plimsoll
