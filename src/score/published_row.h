// A measurement that somebody published from a real GPU: the run as a Job, what was measured and how. Rows carry the model's
// sizes in words of their own; published_model.h turns those into a family and its configuration.
#pragma once

#include <string>
#include <vector>

#include "job/job.h"

namespace plimsoll {

enum class MeasuredKind : uint8_t {
  allocated,  // torch.cuda.max_memory_allocated()
  reserved,   // torch.cuda.max_memory_reserved()
  device,     // nvidia-smi, NVML
  resting,    // torch.cuda.memory_allocated() after a step
};
const char* to_string(MeasuredKind kind);  // the names of the rows: allocated_peak, reserved_peak, device_used, static_allocated

struct PublishedRow {
  std::string id, family, gpu;
  MeasuredKind kind = MeasuredKind::allocated;
  int64_t bytes = 0;
  double confidence = 1;
  bool torch_stated = true;      // else it may be one that loads all kernels at the start
  bool without_context = false;  // device memory less what was in use when the run began
  Job job;
  std::string unsupported;  // what no Job can express yet; empty when the run can be simulated
};

// A line of a file of published rows, told from other rows by its `measured` object.
bool is_published_row(const std::string& line);

// Reads one row per line; an Error names the file and line.
std::vector<PublishedRow> read_published_rows(const std::string& path);

}  // namespace plimsoll
