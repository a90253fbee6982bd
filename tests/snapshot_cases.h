// Memory snapshots read, walked back and replayed; and cases of the line protocol as such snapshots.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <optional>
#include <sstream>
#include <string>

#include "allocator/recorded_settings.h"
#include "allocator/snapshot_replay.h"
#include "allocator_cases.h"
#include "pickle_writer.h"
#include "recorder.h"

namespace plimsoll {

struct Replayed {
  Snapshot snapshot;
  AllocConf conf;
  RecordedRun run;
  SnapshotReplay replay;
};

inline CudaDevice device_for(const RecordedRun& run) { return {run.limit ? run.limit->taken : kBoundlessDevice, 0, {}}; }

// Read, walked back and replayed as recorded.
inline Replayed replayed(const std::string& bytes, std::optional<int> device = {}) {
  Replayed r;
  r.snapshot = read_snapshot(bytes, "f");
  r.conf = recorded_settings(r.snapshot).conf;
  r.run = recorded_run(r.snapshot, device.value_or(busiest_device(r.snapshot)), r.conf);
  r.replay = replay_snapshot(r.run, r.conf, device_for(r.run), ReplayStart::as_recorded);
  return r;
}

// A case of the line protocol through our recorder, cut where its setup ends.
inline Replayed snapshot_of_case(const std::string& script) {
  int64_t capacity = 0, setup = 0, operations = 0;
  std::string settings, line, word;
  std::optional<Recorder> recorder;
  std::map<std::string, int64_t> ids;
  size_t hidden = 0;
  for (std::istringstream in(script); std::getline(in, line);) {
    std::istringstream words(line);
    words >> word;
    if (word == "#") {
      words >> word;
      if (word == "capacity:") words >> capacity;
      if (word == "setup:") words >> setup;
      if (word == "settings:") words >> settings;
      continue;
    }
    if (!recorder) recorder.emplace(settings, capacity);
    std::string id;
    int64_t number = 0, stream = 0;
    if (word == "next_segment_at") {
      words >> number;
      recorder->next_segment_at(number);
      continue;
    }
    if (word == "alloc") {
      words >> id >> number >> stream;
      ids.emplace(id, static_cast<int64_t>(ids.size()));
      if (number > 0) recorder->alloc(ids[id], number, static_cast<int32_t>(stream));
    } else if (word == "free") {
      words >> id;
      if (recorder->alive(ids[id])) recorder->free(ids[id]);
    } else if (word == "empty_cache") {
      recorder->empty_cache();
    }
    if (++operations == setup) hidden = recorder->entries();
  }
  return replayed(pickled(recorder->snapshot(recorder->entries() - hidden)));
}

// X.case (or X.case.gz) and the summary at the end of X.expect.
inline void expect_case_from_snapshot(const std::filesystem::path& path) {
  const Replayed r = snapshot_of_case(text_of(path));
  const std::string expected = text_of(expected_of(path));
  std::istringstream summary(expected.substr(expected.rfind("summary")));
  std::string word;
  int64_t allocated_peak = 0, reserved_peak = 0, retries = 0;
  summary >> word >> allocated_peak >> reserved_peak >> retries;
  EXPECT_TRUE(r.replay.check.equal()) << path;
  EXPECT_EQ(r.run.left_out, 0u) << path;
  EXPECT_EQ(r.replay.allocated_peak, allocated_peak) << path;
  EXPECT_EQ(r.replay.reserved_peak, reserved_peak) << path;
  EXPECT_EQ(r.replay.retries, retries) << path;
}

}  // namespace plimsoll
