// A PyTorch memory snapshot replayed, under the settings it was recorded with and under others, side by side.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "allocator/recorded_settings.h"
#include "allocator/snapshot_replay.h"
#include "report/replay_report.h"

namespace plimsoll {

// One way a recorded run was replayed: a column of the table.
struct ReplayColumn {
  const char* name;         // "recorded", "afresh", "asked"
  std::string explanation;  // what it stands for
  std::string conf;         // the text of PYTORCH_CUDA_ALLOC_CONF
  ReplayStart start = ReplayStart::as_recorded;
  SnapshotReplay replay;
};

struct SnapshotReport {
  const Snapshot& snapshot;
  const RecordedRun& run;
  const RecordedSettings& settings;
  ReplayDevice device;
  std::vector<ReplayColumn> columns;  // at least one; the last is the answer
};

doc::Document snapshot_document(const SnapshotReport& r);
nlohmann::ordered_json snapshot_json(const SnapshotReport& r);

}  // namespace plimsoll
