// What a run here is expected to take: as simulated, and corrected by what like runs on this machine took (estimate/calibration.h). Threads
// of kernels take memory that is not simulated, so runs are alike with as many of them.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "estimate/calibration.h"

namespace plimsoll::measure {

struct Outcome;

struct Expectation {
  MeasuredRun run;                       // with the simulated peak
  std::optional<Correction> correction;  // none without like runs
  double seconds = 0;                    // of a step of the same job; 0: not known
  Bytes peak() const { return run.predicted + (correction ? correction->residual : Bytes{}); }
};

// `calibrated`: like runs count.
Expectation expect(const Job& job, int threads, int64_t steps, bool calibrated);
// A run of two steps or more that went through in the batch it was asked for is kept for the next one. Says so, or why not, on stderr.
void keep(const Expectation& expected, const Job& job, const Outcome& out);

std::string expectation_text(const Expectation& expected);
nlohmann::ordered_json expectation_json(const Expectation& expected);

}  // namespace plimsoll::measure
