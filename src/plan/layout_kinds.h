// The kinds of layout that a plan tries. One line in layout_kinds() and one function that lists the spreads of a kind are all that a new
// one needs; micro-batches, recomputation, execution and ranking are layouts.cpp's.
#pragma once

#include <string>
#include <vector>

#include "plan/layouts.h"

namespace plimsoll {

// A layout without its micro-batch.
struct Spread {
  Patch settings;
  int64_t replicas = 1;       // ranks that have samples of their own
  int64_t micro_batches = 1;  // the accumulation is a multiple of it
  bool accumulates = false;   // differs from another one only in how it accumulates
  bool needs_more = false;    // at the same micro-batch and recomputation, than the last one before it that has this not
  int64_t pipeline = 1;       // stages that take all micro-batches of a step as one batch, at least as many as they are: torchtitan's
};

struct Spreads {
  std::vector<Spread> all;
  std::string why_none;  // when there are none
};

struct LayoutKind {
  const char* name;   // for --layouts
  const char* title;  // for tables
  Spreads (*spreads)(const LayoutRequest& request);
  std::vector<nlohmann::json> checkpointing;  // the levels that are tried, what recomputes least first
  // The ranks that may need the most memory or time, as jobs that are executed; null: all ranks are alike.
  std::vector<Job> (*ranks)(const Job& job);
};
const std::vector<LayoutKind>& layout_kinds();
// Throws an Error with the names that are known.
void check_layout_kinds(const std::set<std::string>& names);

Spreads ddp_spreads(const LayoutRequest& request);
Spreads zero1_spreads(const LayoutRequest& request);
Spreads deepspeed_spreads(const LayoutRequest& request);
Spreads fsdp1_spreads(const LayoutRequest& request);
Spreads fsdp2_spreads(const LayoutRequest& request);
Spreads tensor_parallel_spreads(const LayoutRequest& request);
Spreads fsdp2_tensor_spreads(const LayoutRequest& request);
Spreads torchtitan_spreads(const LayoutRequest& request);
std::vector<Job> torchtitan_ranks(const Job& job);
Spreads megatron_spreads(const LayoutRequest& request);
std::vector<Job> megatron_ranks(const Job& job);

// Context parallelism leaves a rank at least so many tokens.
constexpr int64_t kTokensOfRank = 4096;

}  // namespace plimsoll
