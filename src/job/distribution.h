// How a job is spread over processes, whoever spreads it: PyTorch's wrappers (job/parallel.h), torchtitan or Megatron-LM.
#pragma once

#include <cstdint>
#include <string>

namespace plimsoll {

struct Job;

// Several processes, or a wrapper that would take them. JAX on several devices is one process.
bool is_distributed(const Job& job);
int64_t world_size(const Job& job);  // processes
// Ranks, or JAX's devices, that have samples of their own.
int64_t replica_count(const Job& job);
// Each rank has a part of every parameter, so that what it counts is not the model.
bool shards_parameters(const Job& job);
std::string layout_text(const Job& job);  // "DDP on 8", "ZeRO-1 rank 0 of 8", "torchtitan on 64: ..."; empty for one process

}  // namespace plimsoll
