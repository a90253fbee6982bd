// Files that programs write about their own memory: PyTorch's snapshots, profiler traces, memory timelines and counters, and our trace
// files. The content decides which one it is; gzip is unpacked.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "api/show.h"
#include "report/measured_memory.h"

namespace plimsoll {

struct RecordedFileRequest {
  std::string file;
  std::optional<int> device;  // of a snapshot; none: the busiest
  std::string marks;          // of a snapshot: where steps begin (snapshot_story.h)
  OnProgress progress;        // of bytes read
};

// Whether the words of a run name one such file.
bool is_recorded_file(const std::vector<std::string>& words);

// What `plimsoll explain` says of it.
ExitCode answer(const RecordedFileRequest& request, const Show& show);
// The data of its page (report/page.h). Counters have none: an Error.
nlohmann::ordered_json recorded_page(const RecordedFileRequest& request);
// Its peaks and its curve, to stand beside a prediction. Only of a snapshot: an Error for any other.
MeasuredMemory measured_file(const RecordedFileRequest& request);

}  // namespace plimsoll
