// What programs record of their own memory: snapshots and what they tell, simulated runs written as snapshots, profiler traces,
// timelines, counters; and the commands that are made from the parser's own tree.
#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "../pickle_writer.h"
#include "../recorder.h"
#include "../support.h"
#include "allocator/snapshot_writer.h"
#include "api/recorded_file.h"
#include "diagnose/snapshot_story.h"
#include "report/run_report.h"
#include "report/story_report.h"
#include "shown.h"
#include "simulate.h"
#include "step/train.h"
#include "trace/memory_stats.h"
#include "trace/memory_timeline.h"
#include "trace/profiler_trace.h"
#include "util/gunzip.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

Snapshot read(const std::string& bytes) { return read_snapshot(bytes, "f"); }

std::string sample(const std::string& name) {
  std::ifstream in(fs::path(PLIMSOLL_SOURCE_DIR) / "tests/data" / (name + ".pickle"), std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// --- a simulated run as a snapshot

Job small_job() {
  return job_of(
      "gpt2", {{"config", {{"n_layer", 2}, {"n_embd", 64}, {"n_head", 4}, {"vocab_size", 1000}}}, {"batch", 4}, {"seq", 64}, {"steps", 4}});
}

TEST(SnapshotWriter, WhatIsWrittenIsReadBackAndLiesWhereItWas) {
  const Job job = small_job();
  const Trace trace = simulate(job).trace;
  for (const char* conf : {"", "expandable_segments:True", "max_split_size_mb:32,roundup_power2_divisions:4"}) {
    const AllocConf settings = parse_alloc_conf(conf);
    const Snapshot snapshot = read(snapshot_pickle(trace, settings, step_names(job)));
    EXPECT_EQ(recorded_settings(snapshot).conf, settings) << conf;
    const SnapshotStory s = snapshot_story(snapshot, {}, "");
    const CudaTimeline expected = cuda_timeline(trace, settings);
    EXPECT_TRUE(s.replay.check.equal()) << conf;
    EXPECT_TRUE(s.run.from_the_beginning());
    EXPECT_EQ(s.run.left_out, 0u);
    EXPECT_EQ(s.replay.allocated_peak, expected.allocated_peak) << conf;
    EXPECT_EQ(s.replay.reserved_peak, expected.reserved_peak) << conf;
    EXPECT_EQ(s.replay.end.allocated, s.run.end_allocated);
    EXPECT_EQ(s.run.end_reserved, expected.end.reserved);
    EXPECT_EQ(s.marks.at.size(), 4u) << s.marks.source;  // its steps are annotations
  }
}

TEST(SnapshotWriter, ModulesStandInThePlaceOfFrames) {
  const Job job = small_job();
  const SnapshotStory s = snapshot_story(read(snapshot_pickle(simulate(job).trace, {}, step_names(job))), {}, "");
  int64_t sum = 0;
  for (const Holder& h : s.by_place) sum += h.bytes;
  int64_t alive = 0;
  for (const LiveStorage& l : s.alive) alive += s.recorded.trace.storages[l.id].bytes;
  EXPECT_EQ(sum, alive);
  EXPECT_TRUE(std::any_of(s.by_file.begin(), s.by_file.end(), [](const Holder& h) { return h.name == "transformer.h.*.mlp.c_fc"; }));
  EXPECT_TRUE(s.leaks.empty());
}

// --- what a snapshot tells

// Eight steps of a program that keeps a small tensor of each; its frames are one place for each allocation of a step.
Snapshot leaking(size_t most = SIZE_MAX) {
  Recorder recorder;
  for (int64_t step = 0; step < 8; ++step) {
    recorder.alloc(step * 10, 4000000);
    recorder.alloc(step * 10 + 1, 3000);
    recorder.alloc(step * 10 + 2, 700000 + step);
    recorder.free(step * 10 + 2);
    recorder.free(step * 10);
    recorder.alloc(step * 10 + 3, 50000);
    recorder.free(step * 10 + 3);
  }
  Snapshot s = recorder.snapshot(most);
  // The recorder gives every call a stack of its own; a program has one for each place.
  s.stacks.resize(6);
  for (SnapshotStack& stack : s.stacks) stack.place = 0;
  for (SnapshotEntry& e : s.traces[0].entries) e.stack = e.size == 4000000 ? 1 : e.size == 3000 ? 2 : e.size == 50000 ? 3 : 4;
  return read(pickled(s));
}

TEST(SnapshotStory, FindsWhatGrowsFromStepToStep) {
  const Snapshot snapshot = leaking();
  const SnapshotStory s = snapshot_story(snapshot, {}, "");
  EXPECT_EQ(s.marks.at.size(), 8u) << s.marks.source;
  ASSERT_EQ(s.leaks.size(), 1u);
  EXPECT_EQ(s.leaks[0].bytes_per_step, 3000);
  EXPECT_EQ(s.leaks[0].blocks, 8);
  EXPECT_EQ(s.leaks[0].place, "forward (model.py:2)");
  EXPECT_TRUE(holds(shown(story_document(snapshot, s)), "2.93 KiB"));
}

TEST(SnapshotStory, TakesMarksThatAreGiven) {
  const Snapshot snapshot = leaking();
  EXPECT_EQ(snapshot_story(snapshot, {}, "0,20,40").marks.at.size(), 3u);
  EXPECT_EQ(snapshot_story(snapshot, {}, "model.py:3").marks.at.size(), 8u);
  EXPECT_TRUE(holds(error_of([&] { snapshot_story(snapshot, {}, "nowhere"); }), "in no annotation and no place"));
  EXPECT_TRUE(holds(error_of([&] { snapshot_story(snapshot, {}, "99999"); }), "entries"));
}

TEST(SnapshotStory, KnowsWhatWasThereBeforeTheRingBuffer) {
  const Snapshot snapshot = leaking(30);
  const SnapshotStory s = snapshot_story(snapshot, {}, "");
  EXPECT_FALSE(s.run.from_the_beginning());
  EXPECT_GT(s.run.start_allocated, 0);
  EXPECT_TRUE(
      std::any_of(s.by_place.begin(), s.by_place.end(), [](const Holder& h) { return h.name == "allocated before the recording"; }));
}

TEST(SnapshotStory, ShowsHolesAndOtherSettings) {
  const Snapshot snapshot = read(sample("fragmented"));
  const SnapshotStory s = snapshot_story(snapshot, {}, "");
  ASSERT_EQ(s.final_segments.size(), 1u);
  EXPECT_EQ(s.final_segments[0].size, 30 * kMiB);
  ASSERT_GE(s.others.size(), 2u);
  EXPECT_TRUE(s.others[0].runs_out);
  EXPECT_EQ(s.others[1].conf, "expandable_segments:True");
  EXPECT_FALSE(s.others[1].runs_out);
  const std::string text = shown(story_document(snapshot, s));
  EXPECT_TRUE(holds(text, "1 hole, the largest 25.00 MiB"));
  const auto json = story_json(snapshot, s);
  EXPECT_EQ(json["segments_at_end"][0]["largest_hole_bytes"], 25 * kMiB);
  EXPECT_EQ(json["command"], "explain");
}

TEST(SegmentMap, DrawsWhatIsUsedWhere) {
  PlacedSegment s{5600, false, {{2800, 1, true}, {1400, 0, false}, {1400, 2, true}}};
  const auto drawn = [](const std::vector<PlacedSegment>& segments, size_t most) {
    return doc::to_text({"", {}, {segment_map(segments, most)}}, Style{false, false});
  };
  EXPECT_TRUE(holds(drawn({s}, 4), std::string(28, '#') + std::string(14, '.') + std::string(14, '#')));
  EXPECT_TRUE(holds(drawn({s, s, s}, 1), "[2 others]"));
}

TEST(SnapshotStory, EverySampleHasOne) {
  for (const char* name :
       {"protocol2", "protocol3", "protocol4", "protocol5", "cpp_writer", "segments_only", "torch_1_13", "two_devices", "oom"}) {
    const Snapshot snapshot = read(sample(name));
    const SnapshotStory s = snapshot_story(snapshot, {}, "");
    EXPECT_FALSE(shown(story_document(snapshot, s)).empty()) << name;
    int64_t used = 0;
    for (const PlacedSegment& segment : s.final_segments)
      for (const PlacedBlock& b : segment.blocks) used += b.used ? b.size : 0;
    EXPECT_EQ(used, s.run.end_allocated) << name;
  }
}

// --- torch.profiler

const char* kProfile = R"({"schemaVersion": 1, "traceEvents": [
  {"ph": "M", "name": "process_name", "ts": 1.0, "pid": 1, "tid": 0, "args": {"name": "python"}},
  {"ph": "X", "cat": "python_function", "name": "nn.Module: Net_0", "pid": 1, "tid": 7, "ts": 10, "dur": 40},
  {"ph": "X", "cat": "cpu_op", "name": "aten::linear", "pid": 1, "tid": 7, "ts": 11, "dur": 10},
  {"ph": "X", "cat": "cpu_op", "name": "aten::addmm", "pid": 1, "tid": 7, "ts": 12, "dur": 5},
  {"ph": "X", "cat": "cpu_op", "name": "autograd::engine::evaluate_function: AddmmBackward0", "pid": 1, "tid": 8, "ts": 60, "dur": 20},
  {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "tid": 7, "ts": 13, "args": {"Bytes": 1024, "Addr": 100, "Total Allocated": 5024, "Total Reserved": 8192, "Device Type": 1, "Device Id": 0}},
  {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "tid": 8, "ts": 65, "args": {"Bytes": 2048, "Addr": 200, "Total Allocated": 7072, "Total Reserved": 8192, "Device Type": 1, "Device Id": 0}},
  {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "tid": 8, "ts": 70, "args": {"Bytes": -1024, "Addr": 100, "Total Allocated": 6048, "Total Reserved": 8192, "Device Type": 1, "Device Id": 0}},
  {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "tid": 8, "ts": 71, "args": {"Bytes": -1000, "Addr": 900, "Total Allocated": 5048, "Total Reserved": 8192, "Device Type": 1, "Device Id": 0}},
  {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "tid": 7, "ts": 72, "args": {"Bytes": 64, "Addr": 300, "Total Allocated": 64, "Total Reserved": 0, "Device Type": 0, "Device Id": -1}}
]})";

TEST(ProfilerTrace, KnowsOpsModulesPhasesAndWhatWasThereBefore) {
  const std::vector<ProfiledDevice> devices = read_profiler_trace(kProfile, "f");
  ASSERT_EQ(devices.size(), 2u);
  const ProfiledDevice& gpu = devices[0];
  EXPECT_EQ(gpu.name, "cuda:0");
  EXPECT_EQ(devices[1].name, "cpu");
  EXPECT_EQ(gpu.before, 4000);
  EXPECT_EQ(gpu.peak, 7072);
  EXPECT_EQ(gpu.reserved_peak, 8192);
  EXPECT_EQ(ideal_timeline(gpu.trace).peak().bytes, 7072);
  const StorageRecord& first = gpu.trace.storages[1];
  EXPECT_EQ(gpu.trace.names[first.op], "aten::addmm");
  EXPECT_EQ(gpu.trace.scope_path(first.scope), "Net_0");
  EXPECT_EQ(first.phase, Phase::forward);
  EXPECT_EQ(gpu.trace.storages[2].phase, Phase::backward);
  int64_t end = 0;
  for (const LiveStorage& l : alive_at(gpu.trace, static_cast<int64_t>(gpu.trace.events.size()) - 1)) end += gpu.trace.storages[l.id].bytes;
  EXPECT_EQ(end, 5048);
}

TEST(ProfilerTrace, SaysWhatIsWrong) {
  EXPECT_TRUE(holds(error_of([] { read_profiler_trace(R"({"traceEvents": [{"ph": "X"}]})", "f"); }), "no [memory] events"));
  EXPECT_TRUE(holds(error_of([] { read_profiler_trace(std::string(kProfile).substr(0, 900), "f"); }), "cut off"));
  EXPECT_FALSE(looks_like_profiler_trace("Epoch 1 loss 2.0"));
  EXPECT_FALSE(looks_like_profiler_trace(R"({"model_type": "llama"})"));
}

TEST(MemoryTimeline, LevelsAndEventsGiveTheSameAmounts) {
  const std::string levels =
      R"([[10, 20, 30], [[0, 100, 0, 5, 0, 0, 0, 0, 0], [0, 100, 0, 5, 0, 70, 0, 0, 2], [0, 100, 0, 5, 0, 20, 30, 0, 0]]])";
  const std::string events =
      R"([[-1, 1, 100, 0], [-1, 1, 5, 2], [20, 2, 70, 4], [20, 2, 2, 7], [30, 4, -50, 4], [30, 2, 30, 5], [30, 4, -2, 7]])";
  for (const std::string& text : {levels, events}) {
    ASSERT_TRUE(looks_like_memory_timeline(text));
    const Trace t = read_memory_timeline(text, "f");
    const StepPeak peak = ideal_timeline(t).peak();
    EXPECT_EQ(peak.bytes, 177);
    EXPECT_EQ(peak.by_category[static_cast<size_t>(Category::parameter)], 100);
    EXPECT_EQ(peak.by_category[static_cast<size_t>(Category::activation)], 70);
    ByCategory end{};
    for (const LiveStorage& l : alive_at(t, static_cast<int64_t>(t.events.size()) - 1))
      end[static_cast<size_t>(l.category)] += t.storages[l.id].bytes;
    EXPECT_EQ(end[static_cast<size_t>(Category::activation)], 20);
    EXPECT_EQ(end[static_cast<size_t>(Category::gradient)], 30);
    EXPECT_EQ(end[static_cast<size_t>(Category::workspace)], 0);
  }
  EXPECT_TRUE(holds(error_of([] { read_memory_timeline("[[1, 2], [[0]]]", "f"); }), "2 times and 1 rows"));
  EXPECT_TRUE(holds(error_of([] { read_memory_timeline("[[1, 9, 5, 0]]", "f"); }), "place 1"));
  EXPECT_FALSE(looks_like_memory_timeline("[{\"a\": 1}]"));
}

TEST(MemoryStats, AreReadFlatAndNested) {
  const std::string flat =
      R"({"allocated_bytes.all.current": 100, "allocated_bytes.all.peak": 500, "reserved_bytes.all.current": 600, "reserved_bytes.all.peak": 700, "inactive_split_bytes.all.current": 90, "num_alloc_retries": 2, "num_ooms": 1})";
  ASSERT_TRUE(looks_like_memory_stats(flat));
  const MemoryStats s = read_memory_stats(flat, "f");
  EXPECT_EQ(s.allocated_peak, 500);
  EXPECT_EQ(s.retries, 2);
  const std::string text = shown(stats_document(s));
  EXPECT_TRUE(holds(text, "ran out of memory 1 time"));
  EXPECT_TRUE(holds(text, "expandable_segments:True"));
  const std::string nested =
      R"({"rank0": {"allocated_bytes": {"all": {"current": 1, "peak": 2}}, "reserved_bytes": {"all": {"current": 3, "peak": 4}}}})";
  ASSERT_TRUE(looks_like_memory_stats(nested));
  EXPECT_EQ(read_memory_stats(nested, "f").reserved_peak, 4);
  EXPECT_FALSE(looks_like_memory_stats("{\"allocated_bytes\": 5}\n{\"allocated_bytes\": 6}\n"));
  EXPECT_TRUE(holds(error_of([] { read_memory_stats(R"({"allocated_bytes.all.current": "x", "allocated_bytes.all.peak": 1})", "f"); }),
                    "allocated_bytes.all.current"));
}

std::string gzipped(const std::string& text) {
  z_stream z{};
  deflateInit2(&z, 9, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  std::string out(text.size() / 100 + 4096, '\0');
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  z.avail_in = static_cast<uInt>(text.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(out.size());
  deflate(&z, Z_FINISH);
  out.resize(out.size() - z.avail_out);
  deflateEnd(&z);
  return out;
}

TEST(Gunzip, UnpacksAndRefuses) {
  const std::string text(300000, 'a');
  const std::string packed = gzipped(text);
  EXPECT_EQ(gunzip(packed, "f"), text);
  EXPECT_EQ(gunzip(packed + packed, "f"), text + text);
  EXPECT_TRUE(holds(error_of([&] { gunzip(packed, "f", 1000); }), "more than 1000 bytes"));
  EXPECT_TRUE(holds(error_of([&] { gunzip(packed.substr(0, packed.size() / 2), "f"); }), "cut off"));
  EXPECT_TRUE(holds(error_of([&] { gunzip("\x1f\x8bgarbage", "f"); }), "damaged"));
}

// --- the command itself

class Command : public ::testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }
  std::string file(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return (folder_ / name).string();
  }
  static std::string output(const std::string& command) {
    FILE* pipe = popen(command.c_str(), "r");
    std::string out;
    char buffer[4096];
    while (const size_t n = fread(buffer, 1, sizeof buffer, pipe)) out.append(buffer, n);
    pclose(pipe);
    return out;
  }
  static std::string plimsoll(const std::string& arguments) { return output(std::string(PLIMSOLL_BINARY) + " " + arguments + " 2>&1"); }
  fs::path folder_ = fs::temp_directory_path() / ("plimsoll_recorded_" + std::to_string(getpid()));
};

TEST_F(Command, ExplainsEveryKindOfFile) {
  EXPECT_TRUE(holds(plimsoll("explain " + file("p.json", kProfile)), "torch.profiler trace, cuda:0"));
  EXPECT_TRUE(holds(plimsoll("explain " + file("p.json.gz", gzipped(kProfile))), "torch.profiler trace, cuda:0"));
  EXPECT_TRUE(holds(plimsoll("explain " + file("t.json", "[[-1, 1, 100, 0]]")), "  parameter "));
  EXPECT_TRUE(holds(plimsoll("explain " + file("s.pickle", sample("fragmented"))), "Who holds memory at the peak"));
  EXPECT_TRUE(holds(plimsoll("explain " + file("e.pickle", sample("evil"))), "STACK_GLOBAL asks for a Python object"));
  EXPECT_TRUE(holds(plimsoll("explain gpt2 --marks 5"), "--device and --marks are for memory snapshots"));
  EXPECT_TRUE(holds(plimsoll("report " + file("m.json", R"({"allocated_bytes.all.current": 1})")), "counters alone"));
}

TEST_F(Command, WritesPagesAndSnapshots) {
  const std::string html = (folder_ / "a.html").string(), pickle = (folder_ / "a.pickle").string(), csv = (folder_ / "a.csv").string();
  EXPECT_EQ(plimsoll("report gpt2 --batch 1 --seq 32 --brief --html " + html + " --output " + csv), "");
  EXPECT_TRUE(fs::exists(html));
  EXPECT_TRUE(fs::exists(csv));
  EXPECT_TRUE(holds(plimsoll("estimate gpt2 --batch 1 --seq 32 --snapshot " + pickle), "max_memory_allocated"));
  EXPECT_TRUE(holds(plimsoll("replay " + pickle), "lie where they were recorded"));
  EXPECT_TRUE(
      holds(plimsoll("report gpt2 --batch 1 --html /nowhere/a.html"), "/nowhere/a.html cannot be written: there is no directory /nowhere"));
  EXPECT_TRUE(holds(plimsoll("report gpt2 --output " + (folder_ / "a.pdf").string()), "stands for no format"));
  EXPECT_TRUE(holds(plimsoll("explain " + file("b.log", std::string("\x7f"
                                                                    "ELF\0\0\1\2",
                                                                    8))),
                    "b.log"));
}

TEST_F(Command, CompletesInARealBash) {
  const std::string script = file("completion.bash", plimsoll("completion bash"));
  const auto completed = [&](const std::string& words, int at) {
    return output("bash -c 'source " + script + "; COMP_WORDS=(" + words + "); COMP_CWORD=" + std::to_string(at) +
                  "; _plimsoll; echo \"${COMPREPLY[@]}\"'");
  };
  EXPECT_EQ(completed("plimsoll expl", 1), "explain\n");
  EXPECT_TRUE(holds(completed("plimsoll estimate --precision \"\"", 3), "amp-fp16"));
  EXPECT_TRUE(holds(completed("plimsoll estimate --gpu rtx-409", 3), "rtx-4090"));
  EXPECT_TRUE(holds(completed("plimsoll report llama-3.1-8", 2), "llama-3.1-8b"));
  EXPECT_TRUE(holds(completed("plimsoll report gpt2 --ht", 3), "--html"));
  EXPECT_TRUE(holds(completed("plimsoll completion \"\"", 2), "fish"));
}

TEST_F(Command, ManualsAndCompletionsHaveEveryOption) {
  const std::string man = plimsoll("man report"), fish = plimsoll("completion fish"), zsh = plimsoll("completion zsh");
  EXPECT_TRUE(holds(man, ".TH PLIMSOLL-REPORT 1"));
  EXPECT_TRUE(holds(man, "\\-\\-html"));
  EXPECT_TRUE(holds(man, "\\-\\-optimizer\\-args"));
  EXPECT_TRUE(holds(fish, "__fish_seen_subcommand_from report' -l html"));
  EXPECT_TRUE(holds(zsh, "--html["));
  EXPECT_TRUE(holds(plimsoll("man nothing"), "no command is called 'nothing'"));
  plimsoll("man --all " + (folder_ / "man1").string());
  EXPECT_TRUE(fs::exists(folder_ / "man1/plimsoll.1"));
  EXPECT_TRUE(fs::exists(folder_ / "man1/plimsoll-estimate.1"));
}

// The tour is true: every command in it runs.
TEST_F(Command, TheGuidedTourRuns) {
  std::ifstream in(PLIMSOLL_SOURCE_DIR "/docs/using.md");
  int commands = 0;
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with("    $ ./run ")) continue;
    const std::string arguments = line.substr(12);
    const int status = std::system(("cd '" + folder_.string() + "' && ln -sfn '" PLIMSOLL_SOURCE_DIR "/tests' tests && " + PLIMSOLL_BINARY +
                                    " " + arguments + " >out.txt 2>err.txt")
                                       .c_str());
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    EXPECT_TRUE(code == 0 || code == 3 || code == 4) << line << " gives " << code << "\n"
                                                     << output("cat '" + (folder_ / "err.txt").string() + "'");
    ++commands;
  }
  EXPECT_GE(commands, 10);
}

}  // namespace
}  // namespace plimsoll
