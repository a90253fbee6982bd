// In which order one stage of a pipeline runs its forwards and backwards (megatron.core, pipeline_parallel/schedules.py).
#pragma once

#include <cstdint>
#include <vector>

namespace plimsoll {

struct PipelineCall {
  bool forward = true;
  int64_t micro_batch = 0;
  int64_t chunk = 0;
};

// 1F1B; with several chunks, interleaved, where the micro-batches are a multiple of the stages.
std::vector<PipelineCall> pipeline_schedule(int64_t stages, int64_t stage, int64_t chunks, int64_t micro_batches);
// GPipe: all forwards, then all backwards.
std::vector<PipelineCall> gpipe_schedule(int64_t micro_batches);
// Micro-batches after which every step of the schedule repeats one before it.
int64_t enough_micro_batches(int64_t stages, int64_t chunks, int64_t micro_batches);

}  // namespace plimsoll
