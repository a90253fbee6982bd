// A measured run beside the same job in the simulator: the peaks of every step and phase, what the peak is made of, and the first
// allocation that differs.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "allocator/timeline.h"
#include "job/job.h"

namespace plimsoll::measure {

// The job as the trainer here runs it, for the simulator: libtorch on the CPU, so many steps.
Job simulated_twin(Job job, int64_t steps);

// The largest micro-batch below `failed` that is within `limit` bytes by simulation; 0: there is none.
int64_t largest_that_fits(const Job& job, int64_t failed, int64_t limit);

struct TwinRow {
  std::string what;  // "step 2 backward", "peak: gradient"
  int64_t measured = 0, simulated = 0;
};

struct TwinResult {
  std::vector<TwinRow> rows;
  bool equal() const;
};
TwinResult compare_twins(const Trace& measured, const Trace& simulated);
std::string twin_text(const TwinResult& result);
nlohmann::ordered_json twin_json(const TwinResult& result);

// The first allocation of the steps that differs in size or in what is alive then, with what came before it on both sides; empty: none.
std::string first_difference(const Trace& measured, const Trace& simulated);

}  // namespace plimsoll::measure
