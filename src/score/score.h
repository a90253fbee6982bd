// A prediction set beside what real PyTorch did, to the byte.
#pragma once

#include "score/recorded_row.h"
#include "trace/trace.h"

namespace plimsoll {

struct Score {
  std::string id;
  std::string unsupported;  // why there is no prediction
  int64_t measured = 0, predicted = 0;
  bool rounded_equal = false, phase_peaks_equal = false, breakdown_equal = false, step_peaks_equal = false, parameters_equal = false,
       pools_equal = false;
  double simulated_seconds = 0, recorded_seconds = 0;
  int64_t error() const { return predicted - measured; }
  bool exact() const {
    return unsupported.empty() && error() == 0 && rounded_equal && phase_peaks_equal && breakdown_equal && step_peaks_equal &&
           parameters_equal && pools_equal;
  }
};

Score score_row(const RecordedRow& row);

// Walks the recorder's events (a JSON file) beside the simulated ones and tells the
// first difference in words; empty when there is none.
std::string first_difference(const RecordedRow& row, const std::string& events_path);

}  // namespace plimsoll
