// Memory snapshots: every version's fields, the state at the start of the ring buffer, and the replay, against runs of our own
// allocator recorded as PyTorch would and against files that Python's pickle wrote (tools/snapshot_samples).
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "allocator/recorded_settings.h"
#include "allocator/snapshot_replay.h"
#include "allocator/timeline.h"
#include "allocator/trace_allocators.h"
#include "fuzzing.h"
#include "model/resolve.h"
#include "pickle_writer.h"
#include "recorder.h"
#include "simulate.h"
#include "snapshot_cases.h"
#include "util/error.h"

namespace plimsoll::snapshot_test {
namespace {

namespace fs = std::filesystem;
using Action = SnapshotEntry::Action;

std::string sample(const std::string& name) {
  std::ifstream in(fs::path(PLIMSOLL_SOURCE_DIR) / "tests/data" / (name + ".pickle"), std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

Snapshot read(const std::string& bytes) { return read_snapshot(bytes, "f"); }

std::string error_of(const Snapshot& s) {
  try {
    read(pickled(s));
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

// --- files

TEST(Snapshot, EveryProtocolGivesTheSame) {
  for (const char* name : {"protocol2", "protocol3", "protocol4", "protocol5", "cpp_writer"}) {
    const Replayed r = replayed(sample(name));
    ASSERT_EQ(r.snapshot.segments.size(), 2u) << name;
    EXPECT_EQ(r.snapshot.segments[0].blocks.size(), 3u);
    EXPECT_EQ(r.snapshot.traces.at(0).entries.size(), 8u);
    EXPECT_EQ(r.snapshot.traces[0].last_time - r.snapshot.traces[0].first_time, 20);
    EXPECT_EQ(r.snapshot.places[r.snapshot.stacks[r.snapshot.traces[0].entries[1].stack].place], "forward (model.py:57)") << name;
    EXPECT_TRUE(r.run.from_the_beginning());
    EXPECT_EQ(r.run.left_out, 0u);
    EXPECT_TRUE(r.replay.check.equal()) << name;
    EXPECT_EQ(r.replay.check.placements, 3u);
    EXPECT_EQ(r.replay.allocated_peak, 1024 + 3000320 + 512);
    EXPECT_EQ(r.replay.reserved_peak, 22 * kMiB);
    EXPECT_EQ(r.replay.end.allocated, r.run.end_allocated);
  }
}

TEST(Snapshot, SegmentsAloneAreTheFinalState) {
  const Replayed r = replayed(sample("segments_only"));
  EXPECT_TRUE(r.run.nothing_recorded());
  EXPECT_EQ(r.replay.end.allocated, 3000832);
  EXPECT_EQ(r.replay.end.reserved, 22 * kMiB);
  EXPECT_EQ(r.replay.end.requested, 3000512);
  EXPECT_EQ(r.replay.end.inactive_split, 22 * kMiB - 3000832);
  const SnapshotReplay expandable =
      replay_snapshot(r.run, parse_alloc_conf("expandable_segments:True"), device_for(r.run), ReplayStart::afresh);
  EXPECT_EQ(expandable.end.reserved, 22 * kMiB);
  EXPECT_EQ(expandable.end.allocated, 3000832);
}

TEST(Snapshot, BlocksOfPyTorch113HaveAHistory) {
  const Replayed r = replayed(sample("torch_1_13"));
  const SnapshotSegment& s = r.snapshot.segments.at(0);
  EXPECT_EQ(s.blocks.at(1).address, s.address + 512);
  EXPECT_EQ(s.blocks[0].requested, 400);
  EXPECT_NE(recorded_settings(r.snapshot).note.find("no settings"), std::string::npos);
}

TEST(Snapshot, AnotherDeviceAndAnEmptiedCache) {
  const Replayed r = replayed(sample("two_devices"));
  EXPECT_EQ(r.run.device, 1);
  EXPECT_EQ(devices_of(r.snapshot), std::vector<int>{1});
  EXPECT_EQ(r.run.empty_caches, 1);
  EXPECT_EQ(r.run.retries, 0);
  EXPECT_EQ(r.run.start.size(), 2u);
  EXPECT_EQ(r.run.start_allocated, 20 * kMiB + 512);
  EXPECT_TRUE(r.replay.check.equal());
  EXPECT_EQ(r.replay.end.reserved, 2 * kMiB);
  EXPECT_THROW(recorded_run(r.snapshot, 0, {}), Error);
  EXPECT_THROW(recorded_run(r.snapshot, 7, {}), Error);
}

TEST(Snapshot, AnOutOfMemoryShowsHowMuchThereWas) {
  const Replayed r = replayed(sample("oom"));
  ASSERT_TRUE(r.run.limit);
  EXPECT_EQ(r.run.limit->taken, 40 * kMiB);
  EXPECT_EQ(r.run.ooms, 1);
  EXPECT_EQ(r.run.retries, 1);
  EXPECT_TRUE(r.replay.check.equal());
  EXPECT_EQ(r.replay.ooms_repeated, 1);
  EXPECT_TRUE(r.replay.runs_out());
  const SnapshotReplay larger = replay_snapshot(r.run, r.conf, {64 * kMiB, 0, {}}, ReplayStart::as_recorded);
  EXPECT_EQ(larger.ooms_avoided, 1);
  EXPECT_FALSE(larger.runs_out());
  const SnapshotReplay smaller = replay_snapshot(r.run, r.conf, {30 * kMiB, 0, {}}, ReplayStart::as_recorded);
  ASSERT_TRUE(smaller.oom);
  EXPECT_FALSE(smaller.oom->entry);
}

TEST(Snapshot, ExpandableSegmentsWouldHaveAvoidedIt) {
  const Replayed r = replayed(sample("fragmented"));
  EXPECT_TRUE(r.run.from_the_beginning());
  EXPECT_TRUE(r.replay.check.equal());
  EXPECT_EQ(r.run.limit->taken, 64 * kMiB);
  EXPECT_EQ(r.replay.ooms_repeated, 1);
  const SnapshotReplay asked = replay_snapshot(r.run, parse_alloc_conf("expandable_segments:True"), device_for(r.run), ReplayStart::afresh);
  EXPECT_EQ(asked.ooms_avoided, 1);
  EXPECT_FALSE(asked.runs_out());
  EXPECT_EQ(asked.retries, 0);
}

TEST(Snapshot, CodeInAFileIsNotRun) {
  try {
    read(sample("evil"));
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("STACK_GLOBAL asks for a Python object"), std::string::npos) << e.what();
  }
}

TEST(Snapshot, WrongValuesNameTheirKey) {
  Recorder recorder;
  recorder.alloc(1, 1000);
  const Snapshot good = recorder.snapshot();
  const auto with = [&](const std::function<void(Snapshot&)>& change) {
    Snapshot s = good;
    change(s);
    return error_of(s);
  };
  EXPECT_EQ(with([](Snapshot&) {}), "no error");
  const std::string file = "[snapshot] f: ";
  EXPECT_EQ(with([](Snapshot& s) { s.segments[0].size = -1; }), file + "segments[0].total_size is -1, expected 1 to 1125899906842624");
  EXPECT_EQ(with([](Snapshot& s) { s.segments[0].blocks[1].size = 0; }), file + "segments[0].blocks[1].size is 0, expected 1 to 2097152");
  EXPECT_EQ(with([](Snapshot& s) { s.segments[0].blocks[1].address += 512; }),
            file + "segments[0].blocks[1].address is 1536, expected 1024, where the block before it ends");
  EXPECT_EQ(with([](Snapshot& s) { s.segments[0].blocks.pop_back(); }), file + "segments[0].blocks add up to 1024 bytes of 2097152");
  EXPECT_EQ(with([](Snapshot& s) { s.segments.push_back(s.segments[0]); }), file + "segments at 0 and 0 of device 0 overlap");
  EXPECT_EQ(with([](Snapshot& s) { s.traces[0].entries[1].size = -5; }),
            file + "device_traces[0][1].size is -5, expected 0 to 1152921504606846975");
  EXPECT_EQ(with([](Snapshot& s) { s.segments[0].device = -1; }), file + "segments[0].device is -1, expected 0 to 65535");

  std::string bytes = pickled(good);
  const auto replace = [&](const std::string& from, const std::string& to) {
    std::string changed = bytes;
    changed.replace(changed.find(from), from.size(), to);
    try {
      read(changed);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(replace("total_size", "total_sizf"), file + "segments[0] has no 'total_size'");
  EXPECT_EQ(replace("small", "smell"), file + "segments[0].segment_type is 'smell', expected small or large");
  EXPECT_EQ(replace("segments", "segmentz"), "[snapshot] f holds a dict without 'segments'");
  EXPECT_EQ(replace("is_expandable", "is_expandible"), "no error");  // an unknown key
  PickleWriter w(4);
  w.open('}');
  w.text("segments");
  w.text("none");
  w.close('u');
  bytes = w.finish();
  EXPECT_EQ(replace("none", "nine"), file + "segments is a text, expected a list");
}

// A list of blocks, or a dict of many keys, that is shared by thousands: 10^9 values when expanded.
TEST(Snapshot, SharedValuesAreNotMultiplied) {
  constexpr int kMany = 30'000;
  const auto error = [](const std::string& bytes) {
    try {
      read(bytes);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  PickleWriter traces(4);
  traces.open('}');
  traces.text("segments");
  traces.open(']');
  traces.close('e');
  traces.text("device_traces");
  traces.open(']');
  const uint32_t list = traces.open(']');
  for (int i = 0; i < kMany; ++i) {
    traces.open('}');
    traces.text("action");
    traces.text("snapshot");
    traces.close('u');
  }
  traces.close('e');
  for (int i = 0; i < kMany; ++i) traces.get(list);
  traces.close('e');
  traces.close('u');
  // Its entries were taken when it was read: they are not there again, whoever names the list.
  const Snapshot shared = read(traces.finish());
  size_t entries = 0;
  for (const SnapshotTrace& trace : shared.traces) entries += trace.entries.size();
  EXPECT_EQ(entries, static_cast<size_t>(kMany));

  PickleWriter wide(4);
  wide.open(']');
  const uint32_t dict = wide.open('}');
  for (int i = 0; i < kMany; ++i) {
    wide.text("key " + std::to_string(i));
    wide.integer(0);
  }
  wide.close('u');
  for (int i = 0; i < kMany; ++i) wide.get(dict);
  wide.close('e');
  EXPECT_NE(error(wide.finish()).find("segments[0] has 30000 keys"), std::string::npos);
}

TEST(Snapshot, SettingsComeFromTheEffectiveValues) {
  Snapshot s;
  s.settings = SnapshotSettings{"max_split_size_mb:64,large_segment_size_mb:40", 128 * kMiB, 0.5, true, {{1, 0}, {256, 4}, {65536, 8}}};
  const AllocConf conf = recorded_settings(read(pickled(s))).conf;
  EXPECT_EQ(conf.max_split_size, 128 * kMiB);
  EXPECT_EQ(conf.large_segment_size, 40 * kMiB);
  EXPECT_EQ(conf.garbage_collection_threshold, 0.5);
  EXPECT_TRUE(conf.expandable_segments);
  EXPECT_EQ(conf.divisions[8], 4);
  EXPECT_EQ(conf.divisions[15], 8);
  s.settings = SnapshotSettings{"roundup_bypass_threshold_mb:64", -1, {}, {}, {}};
  EXPECT_NE(recorded_settings(s).note.find("Unrecognized key 'roundup_bypass_threshold_mb'"), std::string::npos);
  s.settings = SnapshotSettings{"", {}, {}, {}, {{3, 1}}};
  EXPECT_THROW(recorded_settings(s), Error);
  s.settings = SnapshotSettings{"", {}, 1.5, {}, {}};
  EXPECT_THROW(recorded_settings(s), Error);
}

TEST(AllocConfText, GivesTheSameSettingsBack) {
  for (const char* text :
       {"", "expandable_segments:True", "max_split_size_mb:128,roundup_power2_divisions:8",
        "roundup_power2_divisions:[256:1,512:2,1024:4,>:8]", "large_segment_size_mb:40,max_non_split_rounding_mb:64",
        "garbage_collection_threshold:0.8,per_process_memory_fraction:0.9",
        "pinned_max_round_threshold_mb:4,pinned_reserve_segment_size_mb:8,pinned_num_register_threads:4,throw_on_cudamalloc_oom:True"}) {
    const AllocConf conf = parse_alloc_conf(text);
    EXPECT_EQ(parse_alloc_conf(alloc_conf_text(conf)), conf) << text << " | " << alloc_conf_text(conf);
  }
}

// --- runs of our own allocator

// Weights stay, activations come and go last in first out, a few outlive the step; `streams` > 1 adds frees that wait.
void train(Recorder& r, int steps, int streams, uint32_t seed) {
  std::mt19937 random(seed);
  const int64_t sizes[] = {4, 2048, 12288, 262144, 1 << 20, 3 << 20, 9 << 20, 11534336, 25165824, 31457281};
  int64_t next = 0;
  std::vector<int64_t> live, waiting;
  const auto alloc = [&](int64_t bytes, int32_t stream) {
    if (r.alloc(next, bytes, stream)) live.push_back(next);
    ++next;
  };
  for (int i = 0; i < 40; ++i) alloc(sizes[random() % 8], 0);
  for (int step = 0; step < steps; ++step) {
    const size_t kept = live.size();
    for (int i = 0; i < 60; ++i)
      alloc(sizes[random() % 10] + static_cast<int64_t>(random() % 4096), static_cast<int32_t>(random() % streams));
    while (live.size() > kept + 1) {
      const size_t i = random() % 4 == 0 ? kept + random() % (live.size() - kept) : live.size() - 1;
      const int64_t id = live[i];
      live.erase(live.begin() + static_cast<int64_t>(i));
      if (streams > 1 && random() % 3 == 0) {
        r.request_free(id);
        waiting.push_back(id);
      } else {
        r.free(id);
      }
      if (!waiting.empty() && random() % 3 == 0) {
        r.complete_free(waiting.front());
        waiting.erase(waiting.begin());
      }
      if (random() % 8 == 0) alloc(sizes[random() % 10], static_cast<int32_t>(random() % streams));
    }
    if (step % 3 == 2) {
      r.empty_cache();
      waiting.clear();
    }
  }
}

void expect_same_end(const Replayed& r, const Recorder& recorder, const std::string& what) {
  const CudaStats& s = recorder.allocator().stats();
  EXPECT_EQ(r.run.left_out, 0u) << what;
  EXPECT_TRUE(r.replay.check.equal()) << what << ", entry " << r.replay.check.first_difference.value_or(0) << " of " << r.run.entries;
  EXPECT_EQ(r.replay.end.allocated, s.allocated) << what;
  EXPECT_EQ(r.replay.end.reserved, s.reserved) << what;
  EXPECT_EQ(r.replay.end.requested, s.requested) << what;
  EXPECT_EQ(r.replay.end.inactive_split, s.inactive_split) << what;
  EXPECT_EQ(r.replay.end.segments, s.segments) << what;
}

// A recording cut anywhere ends where the run ended: the walk back finds the state at its start.
TEST(RecordedStart, AnyCutOfARunEndsTheSame) {
  const std::pair<const char*, int> kRuns[] = {{"", 1},
                                               {"", 3},
                                               {"expandable_segments:True", 1},
                                               {"expandable_segments:True", 3},
                                               {"max_split_size_mb:20", 2},
                                               {"roundup_power2_divisions:4", 2},
                                               {"expandable_segments:True,large_segment_size_mb:40", 2}};
  for (const auto& [conf, streams] : kRuns) {
    Recorder recorder(conf);
    train(recorder, 4, streams, 5);
    std::mt19937 random(1);
    for (int i = 0; i < 40; ++i) {
      const size_t kept = i == 0 ? recorder.entries() : i == 1 ? 0 : random() % recorder.entries();
      expect_same_end(replayed(pickled(recorder.snapshot(kept), i % 2 ? 2 : 4)), recorder,
                      std::string(conf) + ", " + std::to_string(kept) + " of " + std::to_string(recorder.entries()) + " entries");
    }
  }
}

// A block that kept half a MiB it did not ask for, before a gap: the tail shows only when the gap is used.
TEST(RecordedStart, HiddenTailsAreFoundByWhatFollows) {
  Recorder recorder;
  for (int i = 0; i < 3; ++i) recorder.alloc(i, 5 * kMiB);
  recorder.free(0);
  recorder.alloc(3, 9 * kMiB / 2);  // in the first 5 MiB, of which it leaves less than 1 MiB: not split
  recorder.free(1);
  const size_t hidden = recorder.entries();
  recorder.alloc(4, 4 * kMiB);
  recorder.free(3);
  recorder.alloc(5, 5 * kMiB);
  const Replayed r = replayed(pickled(recorder.snapshot(recorder.entries() - hidden)));
  ASSERT_EQ(r.run.start.size(), 1u);
  EXPECT_EQ(r.run.start[0].blocks[0].size, 5 * kMiB);
  EXPECT_EQ(r.run.start[0].blocks[0].requested, 9 * kMiB / 2);
  expect_same_end(r, recorder, "tail");
}

// The ring buffer begins between a segment and the allocation that it was taken for.
TEST(RecordedStart, ASegmentMayBeCutOffFromItsAllocation) {
  Recorder recorder("max_split_size_mb:20");
  recorder.alloc(0, 5 * kMiB);  // a cached segment of 20 MiB would be refused: it is not below max_split_size
  const Replayed r = replayed(pickled(recorder.snapshot(1)));
  EXPECT_TRUE(r.run.start.empty());
  expect_same_end(r, recorder, "cut off");
}

// The same step, simulated, recorded and read back, has the numbers that the trace itself has.
TEST(RecordedRun, ASimulatedStepComesBack) {
  Job job;
  job.model = "gpt2";
  job.batch = 2;
  job.seq = 128;
  job.steps = 2;
  resolve_model(job);
  const Trace trace = simulate(job).trace;
  for (const char* conf : {"", "expandable_segments:True"}) {
    Recorder recorder(conf);
    for (const Event& e : trace.events) {
      if (e.kind == Event::Kind::alloc && trace.storages[e.storage].bytes > 0) recorder.alloc(e.storage, trace.storages[e.storage].bytes);
      if (e.kind == Event::Kind::free && recorder.alive(e.storage)) recorder.free(e.storage);
    }
    const Replayed r = replayed(pickled(recorder.snapshot()));
    const CudaTimeline t = cuda_timeline(trace, parse_alloc_conf(conf));
    expect_same_end(r, recorder, conf);
    EXPECT_TRUE(r.run.from_the_beginning());
    EXPECT_EQ(r.replay.allocated_peak, t.allocated_peak);
    EXPECT_EQ(r.replay.reserved_peak, t.reserved_peak);
    EXPECT_EQ(r.replay.at_reserved_peak.fragmentation(), t.at_reserved_peak.fragmentation());
    EXPECT_EQ(r.run.reserved_peak, t.reserved_peak);
    // Asked for the other settings, it has what the trace has under them.
    const AllocConf other = parse_alloc_conf(*conf ? "" : "expandable_segments:True");
    const SnapshotReplay asked = replay_snapshot(r.run, other, device_for(r.run), ReplayStart::afresh);
    EXPECT_EQ(asked.reserved_peak, cuda_timeline(trace, other).reserved_peak);
    EXPECT_EQ(ideal_timeline(trace_of(r.run)).peak().bytes, ideal_timeline(trace).peak().bytes);
  }
}

TEST(RecordedRun, RetriesAreFoundAgain) {
  for (const char* conf : {"", "expandable_segments:True", "max_split_size_mb:20"}) {
    Recorder recorder(conf, 360 * kMiB);
    train(recorder, 6, 1, 11);
    const int64_t retries = recorder.allocator().stats().retries, ooms = recorder.allocator().stats().ooms;
    ASSERT_GT(retries + ooms, 0) << conf;
    const Replayed r = replayed(pickled(recorder.snapshot()));
    ASSERT_TRUE(r.run.limit) << conf;
    EXPECT_EQ(r.run.ooms, ooms) << conf;
    EXPECT_EQ(r.run.limit->taken, 360 * kMiB) << conf;  // an out-of-memory says what was free
    expect_same_end(r, recorder, conf);
    EXPECT_EQ(r.replay.retries, retries) << conf;
  }
}

// Without call stacks, a release is a retry only if what could not be had then is more than was ever held.
TEST(RecordedRun, ReleasesWithoutStacksAreToldByWhatWasHeld) {
  Recorder recorder("", 100 * kMiB);
  recorder.alloc(0, 512);
  recorder.alloc(1, 60 * kMiB);
  recorder.alloc(2, 30 * kMiB);
  recorder.free(1);
  recorder.free(2);
  recorder.empty_cache();
  recorder.alloc(3, 512);  // takes nothing from the device: it was no retry
  recorder.alloc(4, 20 * kMiB);
  recorder.free(4);
  recorder.empty_cache();
  recorder.alloc(5, 30 * kMiB);  // 20 + 30 MiB had been there before
  recorder.free(5);
  recorder.alloc(6, 80 * kMiB);  // 30 + 80 MiB had not: the allocator made room
  Snapshot s = recorder.snapshot();
  for (SnapshotEntry& e : s.traces[0].entries) e.stack = 0;
  const Replayed r = replayed(pickled(s));
  EXPECT_EQ(r.run.empty_caches, 2);
  EXPECT_EQ(r.run.retries, 1);
  ASSERT_TRUE(r.run.limit);
  EXPECT_EQ(r.run.limit->least, 92 * kMiB);
  EXPECT_EQ(r.run.limit->most, 112 * kMiB);
  EXPECT_EQ(r.run.limit->taken, 102 * kMiB);
  EXPECT_TRUE(r.replay.check.equal());
}

// Entries that do not fit are left out and counted, and what is left is replayed.
TEST(RecordedRun, EntriesThatDoNotFitAreLeftOut) {
  Recorder recorder;
  train(recorder, 1, 1, 3);
  Snapshot s = recorder.snapshot();
  std::vector<SnapshotEntry>& entries = s.traces[0].entries;
  const SnapshotEntry stray{Action::free_completed, 0, int64_t{1} << 50, 512, 0};
  entries.insert(entries.begin() + 10, stray);
  entries.push_back({Action::alloc, 0, int64_t{1} << 51, 4096, 0});
  entries.push_back({Action::unknown, 0, 0, 0, 0});
  const Replayed r = replayed(pickled(s));
  EXPECT_EQ(r.run.left_out, 2u);
  EXPECT_EQ(r.run.first_left_out, 10u);
  EXPECT_EQ(r.run.unknown_actions, 1u);
  EXPECT_TRUE(r.replay.check.equal());
}

TEST(RecordedRun, FreesWithoutRequestsStillFree) {
  Recorder recorder;
  train(recorder, 2, 1, 3);
  Snapshot s = recorder.snapshot(400);
  std::erase_if(s.traces[0].entries, [](const SnapshotEntry& e) { return e.action == Action::free_requested; });
  expect_same_end(replayed(pickled(s)), recorder, "no requests");
}

TEST(RecordedRun, PrivatePoolsAreKeptApart) {
  Snapshot s;
  const auto segment = [&](int64_t address, int64_t pool, SnapshotBlock::State state) {
    s.segments.push_back(
        {0, address, 2 * kMiB, 0, {0, pool}, true, false, {{address, 2 * kMiB, state == SnapshotBlock::State::free ? 0 : kMiB, state}}});
  };
  segment(0, 1, SnapshotBlock::State::free);
  segment(4 * kMiB, 0, SnapshotBlock::State::free);
  s.traces.push_back({{{Action::alloc, 0, 4 * kMiB, 512, 0},
                       {Action::free_requested, 0, 4 * kMiB, 512, 0},
                       {Action::free_completed, 0, 4 * kMiB, 512, 0},
                       {Action::alloc, 0, 0, 512, 0},
                       {Action::free_requested, 0, 0, 512, 0},
                       {Action::free_completed, 0, 0, 512, 0}},
                      0,
                      0});
  const Replayed r = replayed(pickled(s));
  EXPECT_EQ(r.run.private_pools, 1);
  EXPECT_TRUE(r.replay.check.equal());
}

TEST(RecordedRun, OtherSettingsStartWithTheSameBlocks) {
  Recorder recorder;
  train(recorder, 4, 2, 9);
  const Replayed r = replayed(pickled(recorder.snapshot(300)));
  for (const char* conf : {"", "expandable_segments:True", "max_split_size_mb:20", "roundup_power2_divisions:8"}) {
    const SnapshotReplay t = replay_snapshot(r.run, parse_alloc_conf(conf), device_for(r.run), ReplayStart::afresh);
    EXPECT_FALSE(t.oom);
    EXPECT_EQ(t.start.requested, r.replay.start.requested) << conf;
    EXPECT_EQ(t.end.requested, r.replay.end.requested) << conf;
    EXPECT_GE(t.reserved_peak, t.allocated_peak) << conf;
    EXPECT_GE(t.allocated_peak, ideal_timeline(trace_of(r.run)).peak().bytes) << conf;
  }
}

// --- scripts of the line protocol

// Peaks and every placement come back from a ring buffer that begins after the setup.
TEST(RecordedRun, ACaseComesBackFromItsSnapshot) {
  expect_case_from_snapshot(fs::path(PLIMSOLL_SOURCE_DIR) / "tests/allocator/training.case");
}

// --- other allocators

TEST(TraceAllocators, NeedAtLeastWhatIsAlive) {
  Job job;
  job.model = "gpt2";
  job.batch = 1;
  job.seq = 64;
  resolve_model(job);
  const Trace trace = simulate(job).trace;
  std::map<std::string, std::map<std::string, int64_t>> figures;
  for (const TraceAllocator& a : trace_allocators())
    for (const AllocatorFigure& f : a.run(trace, {}).figures) figures[a.name][f.key] = f.value;
  const int64_t ideal = figures["ideal"]["tensors_peak_bytes"];
  EXPECT_GT(ideal, 400 * kMiB);
  EXPECT_GE(figures["bfc"]["in_use_peak_bytes"], ideal);
  EXPECT_GE(figures["bfc"]["pool_peak_bytes"], figures["bfc"]["in_use_peak_bytes"]);
  EXPECT_GE(figures["pinned"]["reserved_peak_bytes"], figures["pinned"]["allocated_peak_bytes"]);
  EXPECT_GE(figures["pinned"]["allocated_peak_bytes"], ideal);
}

TEST(TraceAllocators, EndWhereMemoryRunsOut) {
  Trace trace;
  for (uint32_t i = 0; i < 4; ++i) {
    trace.storages.push_back({10 * kMiB, 0, 0, Category::activation, Phase::forward});
    trace.events.push_back({Event::Kind::alloc, 0, i});
  }
  const auto run = [&](const char* name, int64_t memory) {
    for (const TraceAllocator& a : trace_allocators())
      if (a.name == std::string(name)) return a.run(trace, {{}, memory, 0}).oom_event;
    return std::optional<int64_t>(-1);
  };
  EXPECT_EQ(run("ideal", 40 * kMiB), std::nullopt);
  EXPECT_EQ(run("ideal", 39 * kMiB), 3);
  EXPECT_EQ(run("bfc", 40 * kMiB), 3);  // 75 % of it
  EXPECT_EQ(run("bfc", 54 * kMiB), std::nullopt);
}

// --- anything at all

TEST(SnapshotFuzz, AnyBytesGiveAReplayOrAnError) {
  std::vector<std::string> seeds;
  for (const char* name : {"protocol2", "protocol4", "cpp_writer", "oom", "fragmented", "two_devices", "segments_only", "torch_1_13"})
    seeds.push_back(sample(name));
  for (const char* conf : {"", "expandable_segments:True", "max_split_size_mb:20"}) {
    Recorder recorder(conf, 500 * kMiB);
    train(recorder, 1, 2, 4);
    seeds.push_back(pickled(recorder.snapshot(60)));
  }
  fuzz(
      "snapshot", seeds,
      [](const std::string& bytes) {
        const Replayed r = replayed(bytes);
        replay_snapshot(r.run, parse_alloc_conf("expandable_segments:True"), device_for(r.run), ReplayStart::afresh);
        trace_of(r.run);
      },
      6000);
}

// Every value of a snapshot is some other value: of the same type, so that it passes the reader and reaches the walk.
TEST(SnapshotFuzz, AnyNumbersGiveAReplayOrAnError) {
  std::mt19937 random(7);
  int accepted = 0;
  constexpr int kRounds = 3000;
  for (int i = 0; i < kRounds; ++i) {
    const char* confs[] = {"", "expandable_segments:True", "max_split_size_mb:20"};
    Recorder recorder(confs[i % 3], 200 * kMiB);
    train(recorder, 1, 2, static_cast<uint32_t>(i % 5));
    Snapshot s = recorder.snapshot(random() % 200);
    const auto some = [&](int64_t v) {
      const int64_t odd[] = {
          0, 1, 511, 512, 513, v / 2, v + 512, v - 512, v * 2, kMiB, 2 * kMiB, 20 * kMiB, int64_t{1} << 49, int64_t{1} << 59};
      return odd[random() % std::size(odd)];
    };
    for (int n = 0; n < 4; ++n) {
      std::vector<SnapshotEntry>& entries = s.traces[0].entries;
      if (entries.empty()) break;
      SnapshotEntry& e = entries[random() % entries.size()];
      switch (random() % 6) {
        case 0: e.address = some(e.address); break;
        case 1: e.size = some(e.size); break;
        case 2: e.action = static_cast<Action>(random() % 10); break;
        case 3: e.stream = some(e.stream); break;
        case 4: std::swap(e, entries[random() % entries.size()]); break;
        default: entries.erase(entries.begin() + static_cast<int64_t>(random() % entries.size())); break;
      }
    }
    if (!s.segments.empty() && random() % 4 == 0) s.segments.erase(s.segments.begin() + static_cast<int64_t>(random() % s.segments.size()));
    try {
      const Replayed r = replayed(pickled(s));
      for (const char* conf : {"", "expandable_segments:True"})
        replay_snapshot(r.run, parse_alloc_conf(conf), device_for(r.run), ReplayStart::afresh);
      ++accepted;
    } catch (const Error&) {
    }
  }
  EXPECT_GT(accepted, kRounds / 2);
}

}  // namespace
}  // namespace plimsoll::snapshot_test
