// PyTorch's caching allocator against recorded cases and by single behaviours; its settings with its own error wordings;
// XLA's and the pinned-memory allocator; trace files; anything malformed is an Error and nothing else.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "allocator/bfc.h"
#include "allocator/cuda_timeline.h"
#include "allocator/pinned_host.h"
#include "allocator/replay_protocol.h"
#include "allocator/timeline.h"
#include "allocator_cases.h"
#include "fuzzing.h"
#include "trace/trace_file.h"
#include "util/error.h"
#include "util/parse_bytes.h"

namespace plimsoll::allocator_test {
namespace {

namespace fs = std::filesystem;
constexpr int64_t kGiB = int64_t{1} << 30;

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_NE(e.hint(), "");
    return e.what();
  }
  return "no error";
}

std::string conf_error(const std::string& text) {
  return error_of([&] { parse_alloc_conf(text); });
}

TEST(CudaCaching, ReproducesItsOwnCases) { EXPECT_GE(check_cases(fs::path(PLIMSOLL_SOURCE_DIR) / "tests/allocator"), 5); }

struct Engine {
  CudaCachingAllocator a;
  explicit Engine(const std::string& conf = "", int64_t capacity = 80 * kGiB) : a(CudaDevice{capacity, 0, {}}, parse_alloc_conf(conf)) {}
  int64_t block(int64_t bytes) { return a.allocate(bytes)->size; }
};

TEST(CudaCaching, RoundsTo512AndServesFromSegmentsBySize) {
  Engine e;
  EXPECT_EQ(e.block(1), 512);
  EXPECT_EQ(e.block(513), 1024);
  EXPECT_EQ(e.a.stats().reserved, 2 * kMiB);
  EXPECT_EQ(e.block(kMiB + 1), kMiB + 512);  // the large pool's first segment
  EXPECT_EQ(e.a.stats().reserved, 22 * kMiB);
  EXPECT_EQ(e.block(31 * kMiB + 1), 32 * kMiB);  // its own segment; a rest of less than 1 MiB is not split
  EXPECT_EQ(e.a.stats().segments, 3);
}

TEST(CudaCaching, PowerOfTwoDivisionsByInterval) {
  Engine e("roundup_power2_divisions:[256:1,512:2,1024:4,>:8]");
  EXPECT_EQ(e.block(300 * kMiB), 300 * kMiB);
  EXPECT_EQ(e.block(600 * kMiB), 768 * kMiB);
  EXPECT_EQ(e.block(1100 * kMiB), 1280 * kMiB);
  EXPECT_EQ(e.block(5000 * kMiB), 5120 * kMiB);
  EXPECT_EQ(Engine("roundup_power2_divisions:4").block(1200), 1536);  // 1200 is not above 512 x 4
  EXPECT_EQ(Engine("roundup_power2_divisions:4").block(2600), 3072);
  EXPECT_EQ(Engine("roundup_power2_divisions:1").block(2600), 3072);
}

TEST(CudaCaching, LargeSegmentSizeIsTakenAndMapped) {
  Engine plain("large_segment_size_mb:40"), expandable("large_segment_size_mb:12,expandable_segments:True");
  plain.block(3 * kMiB);
  EXPECT_EQ(plain.a.stats().reserved, 40 * kMiB);
  expandable.block(13 * kMiB);
  EXPECT_EQ(expandable.a.stats().reserved, 24 * kMiB);
}

TEST(CudaCaching, OutOfMemoryNamesTheSegmentAndEmptiesTheCache) {
  Engine e("", 100 * kMiB);
  e.a.free(e.a.allocate(40 * kMiB));
  EXPECT_EQ(e.a.allocate(150 * kMiB + 1), nullptr);
  EXPECT_EQ(e.a.stats().reserved, 0);
  EXPECT_EQ(e.a.stats().ooms, 1);
  const std::string start =
      "CUDA out of memory. Tried to allocate 152.00 MiB. GPU 0 has a total capacity of 100.00 MiB of which 100.00 MiB is free. ";
  EXPECT_EQ(oom_message(e.a.last_oom()).substr(0, start.size()), start);
  EXPECT_EQ(e.a.allocate(int64_t{1} << 60), nullptr);
  EXPECT_EQ(oom_message(e.a.last_oom()), "CUDA out of memory. Tried to allocate more than 1EB memory.");
  EXPECT_EQ(pytorch_size(1024), "1024 bytes");
  EXPECT_EQ(pytorch_size(kGiB), "1024.00 MiB");
}

TEST(CudaCaching, ImpossibleDevicesAreErrors) {
  for (const int64_t capacity : {int64_t{0}, int64_t{-1}, INT64_MIN, INT64_MAX})
    EXPECT_THROW(CudaCachingAllocator({capacity, 0, {}}, {}), Error);
  EXPECT_THROW(CudaCachingAllocator({100, -1, {}}, {}), Error);
  EXPECT_THROW(CudaCachingAllocator({100, 101, {}}, {}), Error);
  EXPECT_NE(error_of([] {
              CudaCachingAllocator({100, 0, 1.5}, {});
            }).find("Invalid fraction value: 1.5. Allowed range: 0~1"),
            std::string::npos);
  EXPECT_NE(error_of([] {
              CudaCachingAllocator({100, 0, {}}, parse_alloc_conf("backend:cudaMallocAsync"));
            }).find("not simulated"),
            std::string::npos);
  EXPECT_NE(error_of([] { replay_protocol("# capacity: 0\nalloc a 1\n"); }).find("capacity of 0 bytes"), std::string::npos);
  EXPECT_NE(error_of([] { replay_protocol("# capacity: -5\nalloc a 1\n"); }).find("capacity of -5 bytes"), std::string::npos);
  EXPECT_NE(error_of([] { replay_protocol("alloc a 1\n"); }).find("line 1"), std::string::npos);
}

// The common keys as PyTorch 2.14's _accelerator_setAllocatorSettings words them (of an internal assert: its last sentence; of a number
// that is none, in our words, for its own are "stoull");
// the CUDA keys (fraction, register threads, reserve, backend, unknown) as CUDAAllocatorConfig.cpp has them, not run.
TEST(AllocConf, RefusesInPyTorchsWords) {
  const std::pair<const char*, const char*> kCases[] = {
      {"max_split_size_mb:10", "CachingAllocator option max_split_size_mb too small, must be >= 20"},
      {"max_split_size_mb:30,large_segment_size_mb:40", "CachingAllocator option max_split_size_mb too small, must be >= 40"},
      {"max_non_split_rounding_mb:5", "CachingAllocator option max_non_split_rounding_mb too small, must be >= 20"},
      {"large_segment_size_mb:10", "CachingAllocator option large_segment_size_mb must be > 10 MB"},
      {"max_split_size_mb:lots", "max_split_size_mb: 'lots' is not a whole number"},
      {"max_split_size_mb:99999999999999999999", "max_split_size_mb: '99999999999999999999' is not a whole number"},
      {"max_split_size_mb", "Index out of bounds in ConfigTokenizer"},
      {"max_split_size_mb:", "Index out of bounds in ConfigTokenizer"},
      {",", "Index out of bounds in ConfigTokenizer"},
      {"expandable_segments:true", "Expected 'True' or 'False' at index 2 in ConfigTokenizer but got 'true'"},
      {"garbage_collection_threshold:1.5", "garbage_collect_threshold is invalid, set it in (0.0, 1.0)"},
      {"garbage_collection_threshold:nan", "garbage_collect_threshold is invalid, set it in (0.0, 1.0)"},
      {"garbage_collection_threshold:x", "garbage_collection_threshold: 'x' is not a number"},
      {"roundup_power2_divisions:3", "For roundups, the divisions has to be power of 2 "},
      {"roundup_power2_divisions:0", "For roundups, the divisions has to be power of 2 "},
      {"roundup_power2_divisions:[64:3]", "For roundups, the divisions has to be power of 2 or 0 to disable roundup "},
      {"roundup_power2_divisions:[3:2]", "For roundups, the intervals have to be power of 2 "},
      {"roundup_power2_divisions:[64:4", "Index out of bounds in ConfigTokenizer"},
      {"per_process_memory_fraction:1.1", "per_process_memory_fraction is invalid, set it in [0.0, 1.0]"},
      {"pinned_num_register_threads:3", "Number of register threads has to be power of 2, got 3"},
      {"pinned_num_register_threads:256", "Number of register threads should be less than or equal to 128, got 256"},
      {"pinned_reserve_segment_size_mb:0", "Pinned reserve segment size has to be greater than 0"},
      {"backend:magic", "Unknown allocator backend, options are native and cudaMallocAsync"},
      {"expandable_segment:True", "Unrecognized key 'expandable_segment' in CUDA allocator config."},
  };
  for (const auto& [text, message] : kCases) EXPECT_EQ(conf_error(text), std::string("[alloc_conf] ") + message) << text;
}

TEST(AllocConf, AcceptsWhatPyTorchAccepts) {
  for (const char* text : {"", "  ", "max_split_size_mb:64,", "max_split_size_mb,64", "max_split_size_mb:64x", "max_split_size_mb:-5",
                           "roundup_power2_divisions:[]", "roundup_power2_divisions:[>:4]",
                           "roundup_power2_divisions:[65536:4,131072:8,>:2]", "backend:native", "large_segment_size_mb:11"})
    EXPECT_EQ(conf_error(text), "no error") << text;
  const AllocConf conf = parse_alloc_conf(" max_split_size_mb : 64 , expandable_segments:True, large_segment_size_mb:40");
  EXPECT_EQ(conf.max_split_size, 64 * kMiB);
  EXPECT_EQ(conf.max_non_split_rounding, 40 * kMiB);
  EXPECT_TRUE(conf.expandable_segments);
}

Trace small_trace() {
  Trace t;
  const ScopeId scope = t.add_scope(0, "layer \"0\"");
  for (const int64_t bytes : {int64_t{1000}, 30 * kMiB, int64_t{0}, 3 * kMiB}) {
    t.storages.push_back({bytes, t.intern("aten::mm"), scope, Category::parameter, Phase::forward});
    t.events.push_back({Event::Kind::alloc, 0, static_cast<StorageId>(t.storages.size() - 1)});
    if (bytes == 0) t.events.push_back({Event::Kind::step, 0, 0});
  }
  t.events.push_back({Event::Kind::relabel, static_cast<uint8_t>(Category::gradient), 1});
  t.events.push_back({Event::Kind::free, 0, 1});
  t.events.push_back({Event::Kind::phase, static_cast<uint8_t>(Phase::backward), 0});
  return t;
}

TEST(TraceFile, WritesAndReadsTheSame) {
  std::ostringstream first, second;
  write_trace(small_trace(), first);
  const Trace back = read_trace_text(first.str(), "text");
  write_trace(back, second);
  EXPECT_EQ(first.str(), second.str());
  EXPECT_EQ(back.events.size(), small_trace().events.size());
  EXPECT_EQ(back.scope_path(1), "layer \"0\"");
}

TEST(TraceFile, NamesTheLineThatIsWrong) {
  const std::string head = "{\"plimsoll_trace\":1}\n";
  for (const char* line :
       {"{\"free\":0}", "{\"alloc\":1,\"bytes\":4}", "{\"alloc\":0}", "{\"alloc\":0,\"bytes\":-1}", "{\"alloc\":0,\"bytes\":1e30}", "[]",
        "{", "{}", "{\"phase\":\"sleep\"}", "{\"scope\":1,\"parent\":1,\"name\":\"a\"}", "{\"alloc\":0,\"bytes\":4,\"scope\":9}"})
    EXPECT_NE(error_of([&] { read_trace_text(head + line, "f"); }).find("f:2: "), std::string::npos) << line;
  EXPECT_THROW(read_trace_text("", "f"), Error);
  EXPECT_THROW(read_trace_text("{\"plimsoll_trace\":2}", "f"), Error);
}

TEST(CudaTimeline, ReservesMoreThanIsAlive) {
  const Trace t = small_trace();
  const CudaTimeline timeline = cuda_timeline(t);
  EXPECT_EQ(timeline.allocated_peak, 1024 + 33 * kMiB);
  EXPECT_EQ(timeline.reserved_peak, 52 * kMiB);
  EXPECT_EQ(timeline.at_reserved_peak.segments, 3);
  EXPECT_EQ(timeline.at_reserved_peak.fragmentation(), 19 * kMiB - 1024);
  EXPECT_EQ(timeline.end.allocated, 1024 + 3 * kMiB);
  ASSERT_EQ(timeline.steps.size(), 1u);
  EXPECT_EQ(timeline.steps[0].reserved, 52 * kMiB);
  EXPECT_GE(timeline.allocated_peak, ideal_timeline(t).peak().bytes);
  EXPECT_EQ(cuda_timeline(t, parse_alloc_conf("expandable_segments:True")).reserved_peak, 42 * kMiB);
}

TEST(CudaTimeline, EndsWhereMemoryRunsOut) {
  const CudaTimeline timeline = cuda_timeline(small_trace(), {}, {40 * kMiB, 0, {}});
  ASSERT_TRUE(timeline.oom);
  EXPECT_EQ(timeline.oom->storage, 3u);
  EXPECT_EQ(timeline.oom->numbers.tried, 20 * kMiB);
  EXPECT_EQ(timeline.retries, 1);
}

TEST(Bfc, TakesAllAtOnceOrGrows) {
  BfcAllocator all({64 * kMiB, false, 0}), growing({64 * kMiB, true, 0});
  EXPECT_EQ(all.allocate(1)->size, 256);
  EXPECT_EQ(all.stats().pool, 64 * kMiB);
  growing.allocate(kMiB);
  EXPECT_EQ(growing.stats().pool, 2 * kMiB);
  growing.allocate(3 * kMiB);
  EXPECT_EQ(growing.stats().pool, 6 * kMiB);
  growing.allocate(9 * kMiB);
  EXPECT_EQ(growing.stats().pool, 22 * kMiB);
  EXPECT_EQ(growing.allocate(60 * kMiB), nullptr);
  EXPECT_EQ(growing.stats().ooms, 1);
  EXPECT_THROW(BfcAllocator({0, false, 0}), Error);
  EXPECT_THROW(BfcAllocator({-1, true, 0}), Error);
}

TEST(Bfc, SplitsFromTwiceTheSizeAndJoinsNeighbours) {
  BfcAllocator a({kMiB, false, 0});
  auto* first = a.allocate(1000);
  auto* second = a.allocate(1000);
  a.allocate(1000);
  a.free(first);
  EXPECT_EQ(a.allocate(600), first);  // 1024 is less than twice 768: taken whole
  EXPECT_EQ(first->size, 1024);
  a.free(first);
  a.free(second);
  EXPECT_EQ(a.allocate(2048)->size, 2048);
  EXPECT_EQ(a.stats().in_use, 2048 + 1024);
}

TEST(PinnedHost, RoundsToPowersOfTwoAndKeepsThem) {
  PinnedHostAllocator a;
  EXPECT_EQ(a.rounded(1 << 20), 1 << 20);
  const int64_t handle = a.allocate(4100000000);
  EXPECT_EQ(a.stats().reserved, int64_t{1} << 32);
  a.free(handle);
  EXPECT_EQ(a.stats().reserved, int64_t{1} << 32);
  EXPECT_EQ(a.allocate(3000000000), handle);
  a.free(handle);
  EXPECT_THROW(a.free(handle), Error);
  a.empty_cache();
  EXPECT_EQ(a.stats().reserved, 0);
  EXPECT_THROW(a.allocate(-1), Error);
  PinnedHostAllocator limited(parse_alloc_conf("pinned_max_round_threshold_mb:1,pinned_reserve_segment_size_mb:4"));
  limited.allocate(3 * kMiB);
  EXPECT_EQ(limited.stats().allocated, 3 * kMiB);
  EXPECT_EQ(limited.stats().reserved, 4 * kMiB);
}

TEST(ParseBytes, ReadsWhatPeopleWrite) {
  for (const char* text : {"24GiB", "24 GB", "24g", "24576MiB", "25769803776"}) EXPECT_EQ(parse_bytes(text, "x").count, 24 * kGiB) << text;
  for (const char* text : {"", "0", "-1GiB", "GiB", "12parsecs", "nan", "inf", "1e999", "0x10"})
    EXPECT_THROW(parse_bytes(text, "x"), Error) << text;
}

TEST(AllocatorFuzz, ProtocolLines) {
  std::vector<std::string> seeds;
  for (const char* name : {"streams_and_limit", "expandable", "oversize", "garbage"})
    seeds.push_back(text_of(fs::path(PLIMSOLL_SOURCE_DIR) / "tests/allocator" / (std::string(name) + ".case")));
  fuzz(
      "protocol", seeds, [](const std::string& text) { replay_protocol(text); }, 8000);
}

TEST(AllocatorFuzz, Settings) {
  fuzz(
      "alloc_conf",
      {"max_split_size_mb:64,roundup_power2_divisions:[64:8,256:4,>:1],expandable_segments:True,garbage_collection_threshold:0.8"},
      [](const std::string& text) { parse_alloc_conf(text); }, 4000);
}

TEST(AllocatorFuzz, TraceFiles) {
  std::ostringstream out;
  write_trace(small_trace(), out);
  fuzz(
      "trace", {out.str()}, [](const std::string& text) { cuda_timeline(read_trace_text(text, "fuzz")); }, 4000);
}

}  // namespace
}  // namespace plimsoll::allocator_test
