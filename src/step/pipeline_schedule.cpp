#include "step/pipeline_schedule.h"

#include <algorithm>

namespace plimsoll {

namespace {

// Groups of as many micro-batches as there are stages go through one chunk after the other.
PipelineCall call_of(bool forward, int64_t index, int64_t stages, int64_t chunks) {
  const int64_t group = index / (stages * chunks), in_group = index % (stages * chunks);
  const int64_t chunk = in_group / stages;
  return {forward, group * stages + in_group % stages, forward ? chunk : chunks - 1 - chunk};
}

}  // namespace

std::vector<PipelineCall> pipeline_schedule(int64_t stages, int64_t stage, int64_t chunks, int64_t micro_batches) {
  const int64_t total = micro_batches * chunks;
  int64_t ahead = stages - stage - 1;
  if (chunks > 1) ahead = 2 * ahead + (chunks - 1) * stages;
  ahead = std::min(ahead, total);
  std::vector<PipelineCall> calls;
  for (int64_t i = 0; i < ahead; ++i) calls.push_back(call_of(true, i, stages, chunks));
  for (int64_t i = 0; i + ahead < total; ++i) {
    calls.push_back(call_of(true, i + ahead, stages, chunks));
    calls.push_back(call_of(false, i, stages, chunks));
  }
  for (int64_t i = total - ahead; i < total; ++i) calls.push_back(call_of(false, i, stages, chunks));
  return calls;
}

std::vector<PipelineCall> gpipe_schedule(int64_t micro_batches) {
  std::vector<PipelineCall> calls;
  for (int64_t i = 0; i < micro_batches; ++i) calls.push_back({true, i, 0});
  for (int64_t i = 0; i < micro_batches; ++i) calls.push_back({false, i, 0});
  return calls;
}

int64_t enough_micro_batches(int64_t stages, int64_t chunks, int64_t micro_batches) {
  const int64_t enough = chunks > 1 ? 3 * stages : stages + 1;
  return std::min(micro_batches, std::max<int64_t>(2, enough));
}

}  // namespace plimsoll
