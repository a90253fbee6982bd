// A row recorded from real PyTorch (tools/recorder/README.md): the run as a Job, and what was measured.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "job/job.h"

namespace plimsoll {

struct RecordedRow {
  std::string id;
  Job job;
  std::string unsupported;  // why this row cannot be simulated; empty when it can
  int64_t peak = 0;
  int64_t rounded_peak = 0;  // every storage rounded up to 512 bytes; 0: not recorded
  std::vector<int64_t> step_peaks;
  std::map<std::string, int64_t> breakdown;    // by the recorder's category names
  std::map<std::string, int64_t> phase_peaks;  // by the recorder's phase names
  std::map<std::string, int64_t> pools;        // the peak of every stream's pool in that step; empty: not recorded
  int64_t parameters = 0;                      // elements, adapters among them
  int64_t trainable = 0;                       // elements the optimizer gets
  double seconds = 0;
};

// Reads one row per line; an Error names the file and line.
std::vector<RecordedRow> read_recorded_rows(const std::string& path);

}  // namespace plimsoll
