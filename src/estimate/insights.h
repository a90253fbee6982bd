// What stands out in an estimate, for whoever has no time to read its rows: one sentence each, with the bytes that it is about and the flag
// that changes it. A detector is a pure function of the estimate and of the run it was made from; nothing is executed.
#pragma once

#include <string>
#include <vector>

#include "estimate/estimate.h"
#include "program/run.h"

namespace plimsoll {

struct Insight {
  std::string name;   // "fp32_logits"
  std::string text;   // a sentence with its size: "AdamW's foreach update makes temporaries of 14.96 GiB"
  Bytes bytes;        // at the peak, or what it adds to it
  std::string flags;  // what to try; empty: nothing that a flag says
};

// The largest first. `run` is the one that the estimate was made from.
std::vector<Insight> insights(const Estimate& e, const Run& run);
// The names of all detectors.
std::vector<std::string> insight_names();

}  // namespace plimsoll
