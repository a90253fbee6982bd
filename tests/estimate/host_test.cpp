// Host memory: the DataLoader's rules against what real loaders held (tests/host/loader.jsonl, written by tools/measure_loader.py), the
// rows against sums done by hand, and what no loader accepts.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "allocator/pinned_host.h"
#include "estimate/estimate.h"
#include "estimate/host_fit.h"
#include "estimate/loader.h"
#include "job/settings.h"
#include "model/resolve.h"

namespace plimsoll::host_test {
namespace {

constexpr int64_t kMiB = 1 << 20;
constexpr Bytes kGiB{int64_t{1} << 30};

std::vector<nlohmann::json> measured(const std::string& what) {
  std::ifstream in(PLIMSOLL_SOURCE_DIR "/tests/host/loader.jsonl");
  std::vector<nlohmann::json> rows;
  for (std::string line; std::getline(in, line);)
    if (nlohmann::json row = nlohmann::json::parse(line); row["what"] == what) rows.push_back(row);
  EXPECT_FALSE(rows.empty()) << what;
  return rows;
}

// A job whose batches are one tensor of `batch` x `item` bytes.
Job loader_job(int64_t workers, int64_t prefetch, int64_t batch, int64_t item) {
  Job job;
  job.batch = batch;
  job.host.workers = workers;
  if (workers > 0) job.host.prefetch_factor = prefetch;
  job.host.item_bytes = Bytes{item};
  return job;
}

const HostRow& row(const std::vector<HostRow>& rows, const std::string& name) {
  for (const HostRow& r : rows)
    if (r.name == name) return r;
  throw std::runtime_error("no row " + name);
}

bool has(const std::vector<HostRow>& rows, const std::string& name) {
  return std::any_of(rows.begin(), rows.end(), [&](const HostRow& r) { return r.name == name; });
}

void expect_error(const std::function<void()>& f, const char* words) {
  try {
    f();
    FAIL() << "no error; expected: " << words;
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find(words), std::string::npos) << e.what();
    EXPECT_FALSE(e.hint().empty());
  }
}

// ---- the loader, as measured ----------------------------------------------------------------------------------------

TEST(Loader, IsAheadByWorkersTimesPrefetchFactorAsMeasured) {
  for (const auto& m : measured("outstanding"))
    EXPECT_EQ(loader_memory(loader_job(m["workers"], m["prefetch_factor"], 4, kMiB)).ahead, m["ahead"].get<int64_t>()) << m;
}

TEST(Loader, FillsSharedMemoryToThePageAsMeasured) {
  for (const auto& m : measured("pages")) {
    Job job = loader_job(m["workers"], m["prefetch_factor"], 5, 1);
    job.host.item_bytes.reset();
    job.inputs = InputKind::cls;  // stands in for the three tensors that were measured
    job.seq = 1000;
    // 5 x 1000 int64, and a label; the measured batch had 5 x 3 x 37 x 41 floats instead of the second tensor of ids
    const int64_t ids = 5 * 8000, pixels = 5 * 3 * 37 * 41 * 4;
    const auto pages = [](int64_t bytes) { return (bytes + 4095) / 4096; };
    const int64_t batches = 2 * m["workers"].get<int64_t>() + 1;
    const int64_t mine = loader_memory(job).shm.bytes.count / 4096 + batches * (pages(pixels) - pages(ids));
    EXPECT_EQ(mine, m["used"].get<int64_t>()) << m;
  }
}

// Sizes were chosen at the high end, one page below it, and one page below the best estimate. Between, a race decides.
TEST(Loader, RunsInSharedMemoryThatFitsAndFailsInOneThatDoesNotAsMeasured) {
  std::map<Verdict, int> seen;
  for (const auto& m : measured("limit")) {
    const Verdict v = judge(loader_memory(loader_job(m["workers"], m["prefetch_factor"], 4, kMiB)).shm, Bytes{m["shm_bytes"]});
    if (v != Verdict::tight) {
      EXPECT_EQ(v == Verdict::fits, m["ran"].get<bool>()) << m;
    }
    ++seen[v];
  }
  for (const Verdict v : {Verdict::fits, Verdict::tight, Verdict::does_not_fit}) EXPECT_EQ(seen[v], 4) << to_string(v);
}

TEST(Loader, PinsInPowersOfTwoAsMeasured) {
  const PinnedHostAllocator pinned;
  for (const auto& m : measured("pinned size")) EXPECT_EQ(pinned.rounded(m["requested"]), m["block"].get<int64_t>()) << m;
}

TEST(Loader, PinsWhatIsAheadAndTheBatchInUseAsMeasured) {
  for (const auto& m : measured("pinned loader")) {
    Job job = loader_job(m["workers"], m["prefetch_factor"], 4, 3 * kMiB / 4);
    job.host.pin_memory = true;
    const LoaderMemory l = loader_memory(job);
    EXPECT_EQ(static_cast<double>(l.pinned.bytes.count) / kMiB, m["held_mib"].get<double>()) << m;
    EXPECT_LE(l.shm.low.count, kMiB);  // all of them were pinned, none was left in /dev/shm
  }
}

TEST(Loader, ItemsBeingCollatedLieWithinTheRangeThatWasMeasured) {
  for (const auto& m : measured("build")) {
    const int64_t item = static_cast<int64_t>(m["item_mib"].get<double>() * kMiB);
    const ByteRange building = loader_memory(loader_job(1, 1, m["batch"], item)).building;
    const double peak = m["worker_peak_over_idle_mib"].get<double>() * kMiB;
    EXPECT_GE(peak, static_cast<double>(building.low.count)) << m;
    EXPECT_LE(peak, static_cast<double>(building.high.count)) << m;
  }
}

TEST(Loader, WorkersThatWereMeasuredLieWithinTheRangesOfTheRows) {
  for (const char* what : {"worker", "collected"})
    for (const auto& m : measured(what)) {
      Job job = loader_job(1, 2, 1, 1);
      apply_setting(job, "start_method", m["start_method"], "test");
      const ByteRange range = row(host_memory(job, {}).steady, "workers").size;
      for (const double mib : m["private_mib"]) {
        EXPECT_GE(mib * kMiB, static_cast<double>(range.low.count)) << m;
        EXPECT_LE(mib * kMiB, static_cast<double>(range.high.count)) << m;
      }
    }
}

TEST(Loader, AForkedWorkerCopiesAListOfObjectsButNotAnArrayAsMeasured) {
  for (const auto& m : measured("objects")) {
    Job job = loader_job(2, 2, 1, 1);
    apply_setting(job, "start_method", m["start_method"], "test");
    job.host.dataset_bytes = Bytes{static_cast<int64_t>(m["dataset_mib"].get<double>() * kMiB)};
    const ByteRange copies = row(host_memory(job, {}).steady, "dataset in workers").size;
    double seen = 0;
    for (const double mib : m["worker_private_mib"]) seen += mib * kMiB;
    EXPECT_GE(seen, static_cast<double>(copies.low.count)) << m;
    EXPECT_LE(seen, static_cast<double>(copies.high.count + 2 * kMiB)) << m;  // a MiB a worker for what unpickled it
  }
}

TEST(Loader, ACacheOfTensorsMovesToSharedMemoryUnlessWorkersForkAsMeasured) {
  for (const auto& m : measured("cache")) {
    Job job = loader_job(2, 2, 8, kMiB);
    apply_setting(job, "start_method", m["start_method"], "test");
    job.host.dataset_size = 128;
    const Bytes without = host_memory(job, {}).shm.bytes;
    job.host.cache = CacheKind::ram;
    const Bytes more = host_memory(job, {}).shm.bytes - without;
    EXPECT_NEAR(static_cast<double>(more.count) / kMiB, m["shm_mib"].get<double>(), 0.2) << m;
  }
}

// ---- the loader, by hand --------------------------------------------------------------------------------------------

TEST(Loader, BatchesAreTheTensorsThatCollatorsMake) {
  Job job;
  job.batch = 8;
  job.seq = 1024;
  EXPECT_EQ(batch_tensors(job), (std::vector<Bytes>{{65536}, {65536}, {65536}}));  // 8 x 1024 x 8 bytes: ids, mask, labels
  job.inputs = InputKind::cls;
  EXPECT_EQ(batch_tensors(job), (std::vector<Bytes>{{65536}, {65536}, {64}}));
  job.inputs = InputKind::image;
  job.seq = 224;
  EXPECT_EQ(batch_tensors(job), (std::vector<Bytes>{{4816896}, {64}}));  // 8 x 3 x 224 x 224 x 4
  job.host.item_bytes = Bytes{1000};
  EXPECT_EQ(batch_tensors(job), (std::vector<Bytes>{{8000}}));
}

TEST(Loader, PicturesAndLatentsAreNoTokens) {
  Job job;
  job.family = "wan";
  job.inputs = InputKind::own;
  job.batch = 2;
  job.config = Config("wan", {{"num_layers", 1}, {"height", 64}, {"width", 96}, {"frames", 5}});
  const std::vector<Bytes> video = batch_tensors(job);
  ASSERT_FALSE(video.empty());
  EXPECT_EQ(video[0].count, 2 * 16 * 2 * 8 * 12 * 4);  // latents of one frame and of four
  job.family = "no such model";
  EXPECT_TRUE(batch_tensors(job).empty());
}

TEST(Loader, AShortEpochEndsTheRunAhead) {
  Job job = loader_job(4, 4, 10, 100);
  job.host.dataset_size = 95;  // ten batches
  EXPECT_EQ(loader_memory(job).ahead, 9);
  job.host.dataset_size = 1000;
  EXPECT_EQ(loader_memory(job).ahead, 16);
  job.host.dataset_size = 1000;
  job.host.ranks_per_host = 10;  // ten batches a process
  EXPECT_EQ(loader_memory(job).ahead, 9);
}

TEST(Loader, WithoutWorkersTheProcessHoldsThreeBatchesOrPinsTwo) {
  Job job = loader_job(0, 0, 4, 3 * kMiB / 4);
  EXPECT_EQ(loader_memory(job).held.bytes.count, 9 * kMiB);
  EXPECT_EQ(loader_memory(job).shm.high.count, 0);
  job.host.pin_memory = true;
  EXPECT_EQ(loader_memory(job).held.bytes.count, 6 * kMiB);
  EXPECT_EQ(loader_memory(job).pinned.bytes.count, 8 * kMiB);
}

// ---- rows -----------------------------------------------------------------------------------------------------------

HostFacts facts() {
  HostFacts f;
  f.parameters = Bytes{1000 * kMiB};
  f.buffers = Bytes{kMiB};
  f.optimizer_states = Bytes{2000 * kMiB};
  f.ema = Bytes{1000 * kMiB};
  f.largest = Bytes{100 * kMiB};
  return f;
}

TEST(HostMemory, RowsSumToTheSteadyState) {
  Job job = loader_job(4, 2, 16, kMiB);
  job.host.pin_memory = true;
  job.host.dataset_bytes = Bytes{10 * kMiB};
  job.host.dataset_size = 1000;
  job.host.cache = CacheKind::ram;
  job.host.ranks_per_host = 2;
  const HostEstimate e = host_memory(job, facts());
  ByteRange sum;
  for (const HostRow& r : e.steady) {
    sum += r.size;
    EXPECT_LE(r.size.low, r.size.bytes) << r.name;
    EXPECT_LE(r.size.bytes, r.size.high) << r.name;
    EXPECT_FALSE(r.source.empty()) << r.name;
  }
  EXPECT_EQ(sum.bytes, e.steady_peak.bytes);
  EXPECT_EQ(sum.low, e.steady_peak.low);
  EXPECT_EQ(sum.high, e.steady_peak.high);
  // two processes x (8 ahead + 1) x 16 MiB, which is a power of two already
  EXPECT_EQ(row(e.steady, "pinned batches").size.bytes.count, 2 * 9 * 16 * kMiB);
  EXPECT_EQ(row(e.steady, "cache").size.bytes.count, 2 * 1000 * kMiB);
  EXPECT_EQ(row(e.steady, "dataset object").size.bytes.count, 2 * 10 * kMiB);
  EXPECT_EQ(row(e.steady, "dataset in workers").size.bytes.count, 2 * 4 * 10 * kMiB);
}

TEST(HostMemory, SavingCopiesOneStorageAtATimeOrEverything) {
  Job job = loader_job(0, 0, 1, 1);
  HostEstimate e = host_memory(job, facts());
  EXPECT_EQ((e.save_peak.bytes - e.steady_peak.bytes).count, 100 * kMiB);
  job.host.save = SavePlan::cpu;
  e = host_memory(job, facts());
  EXPECT_EQ((e.save_peak.bytes - e.steady_peak.bytes).count, 4001 * kMiB);
  job.host.ranks_per_host = 8;  // one process writes
  e = host_memory(job, facts());
  EXPECT_EQ((e.save_peak.bytes - e.steady_peak.bytes).count, 4001 * kMiB);
}

TEST(HostMemory, LoadingTakesOneCopyTwoAllOrNearlyNoneInEachProcess) {
  Job job = loader_job(0, 0, 1, 1);
  const auto loaded = [&](LoadPlan plan, int64_t ranks) {
    job.host.load = plan;
    job.host.ranks_per_host = ranks;
    const HostEstimate e = host_memory(job, facts(), reserve_of({}, "test"));
    return (e.load_peak.bytes - row(e.loading, "main process").size.bytes).count / kMiB;
  };
  EXPECT_EQ(loaded(LoadPlan::cpu, 1), 1001);
  EXPECT_EQ(loaded(LoadPlan::state_dict, 1), 2002);
  EXPECT_EQ(loaded(LoadPlan::resume, 1), 4001);
  EXPECT_EQ(loaded(LoadPlan::mmap, 1), 100);
  EXPECT_EQ(loaded(LoadPlan::cpu, 8), 8008);
}

TEST(HostMemory, WorkersThatFillTheirOwnCacheHoldItOnceOrOnceEach) {
  Job job = loader_job(4, 2, 1, kMiB);
  job.host.cache = CacheKind::worker;
  job.host.dataset_size = 100;
  EXPECT_EQ(row(host_memory(job, {}).steady, "caches of workers").size.bytes.count, 100 * kMiB);
  job.host.persistent_workers = true;
  const ByteRange r = row(host_memory(job, {}).steady, "caches of workers").size;
  EXPECT_EQ(r.bytes.count, 400 * kMiB);
  EXPECT_EQ(r.low.count, 100 * kMiB);
}

TEST(HostMemory, ACacheOnDiskTakesNoRam) {
  Job job = loader_job(4, 2, 1, kMiB);
  const Bytes without = host_memory(job, {}).steady_peak.bytes;
  job.host.cache = CacheKind::disk;
  job.host.cache_item_bytes = Bytes{6 * kMiB};
  job.host.dataset_size = 1000;
  const HostEstimate e = host_memory(job, {});
  EXPECT_EQ(e.steady_peak.bytes, without);
  EXPECT_EQ(e.disk.count, 6000 * kMiB);
}

TEST(HostMemory, OffloadedActivationsAreARowOnlyWhenThereAreAny) {
  Job job = loader_job(0, 0, 1, 1);
  HostFacts f = facts();
  EXPECT_FALSE(has(host_memory(job, f).steady, "offloaded activations"));
  f.activations = Bytes{5 * kMiB};
  EXPECT_EQ(row(host_memory(job, f).steady, "offloaded activations").size.bytes.count, 5 * kMiB);
}

TEST(HostMemory, FactsAreWhatTheSimulationLeavesAlive) {
  Job job;
  job.model = "gpt2";
  job.seq = 32;
  job.origin["seq"] = "test";
  job.precision = Precision::fp32;
  job.ema = true;
  resolve_model(job);
  const HostFacts f = estimate(job).host_facts;
  EXPECT_EQ(f.parameters.count, 124439808 * 4);
  EXPECT_EQ(f.ema, f.parameters);
  EXPECT_EQ(f.largest.count, 50257 * 768 * 4);                  // the embedding
  EXPECT_EQ(f.optimizer_states.count, 2 * f.parameters.count);  // AdamW's step counters are on the CPU
}

// ---- verdicts -------------------------------------------------------------------------------------------------------

TEST(HostFit, IsTightBetweenTheEstimateAndItsHighEnd) {
  const ByteRange need{{10}, {5}, {20}};
  EXPECT_EQ(judge(need, Bytes{20}), Verdict::fits);
  EXPECT_EQ(judge(need, Bytes{19}), Verdict::tight);
  EXPECT_EQ(judge(need, Bytes{10}), Verdict::tight);
  EXPECT_EQ(judge(need, Bytes{9}), Verdict::does_not_fit);
  EXPECT_EQ(judge(need, std::nullopt), Verdict::unknown);
}

TEST(HostFit, AdviceIsTheSameCalculationWithTheChange) {
  Job job = loader_job(8, 4, 32, 2 * kMiB);
  job.host.pin_memory = true;
  job.host.cache = CacheKind::ram;
  job.host.dataset_size = 50000;
  HostTarget target;
  target.total = Bytes{32 * kGiB.count};
  const HostFit fit = host_fit(job, facts(), target);
  EXPECT_EQ(fit.ram, Verdict::does_not_fit);
  ASSERT_FALSE(fit.advice.empty());
  const HostAdvice& first = fit.advice.front();
  EXPECT_EQ(first.change, "cache: disk");
  EXPECT_EQ(first.after, Verdict::fits);
  job.host.cache = CacheKind::disk;
  EXPECT_EQ(host_memory(job, facts()).peak().bytes, first.need);
  EXPECT_EQ(first.saving, fit.need.peak().bytes - first.need);
}

TEST(HostFit, FewerWorkersAreTheMostThatFit) {
  Job job = loader_job(16, 2, 32, 4 * kMiB);
  HostTarget target;
  target.total = Bytes{16 * kGiB.count};
  target.system = reserve_of(kGiB, "test");
  const HostFit fit = host_fit(job, facts(), target);
  const auto advice =
      std::find_if(fit.advice.begin(), fit.advice.end(), [](const HostAdvice& a) { return a.change.starts_with("workers: "); });
  ASSERT_NE(advice, fit.advice.end());
  const int64_t n = std::stoll(advice->change.substr(9));
  ASSERT_GT(n, 0);
  job.host.workers = n;
  EXPECT_EQ(host_fit(job, facts(), target).ram, Verdict::fits);
  job.host.workers = n + 1;
  EXPECT_NE(host_fit(job, facts(), target).ram, Verdict::fits);
}

TEST(HostFit, ChangesAreTakenTogetherWhenNoneAloneIsEnough) {
  Job job = loader_job(8, 2, 128, 600 << 10);
  job.host.pin_memory = true;
  job.host.cache = CacheKind::ram;
  job.host.dataset_size = 20000;
  HostTarget target;
  target.total = Bytes{16 * kGiB.count};
  const HostFit fit = host_fit(job, facts(), target);
  ASSERT_FALSE(fit.advice.empty());
  EXPECT_EQ(fit.advice.front().after, Verdict::fits);
  EXPECT_TRUE(fit.advice.front().change.starts_with("cache: disk and ")) << fit.advice.front().change;
  EXPECT_EQ(fit.advice.front().saving, fit.need.peak().bytes - fit.advice.front().need);
}

TEST(HostFit, DockersSharedMemoryIsTooSmallForAFewBatchesOfImages) {
  Job job = loader_job(4, 2, 32, 3 * 224 * 224 * 4);
  HostTarget target;
  target.shm = kDockerShm;
  const HostFit fit = host_fit(job, {}, target);
  EXPECT_EQ(fit.shm, Verdict::does_not_fit);
  EXPECT_EQ(fit.ram, Verdict::unknown);
  EXPECT_EQ(fit.overall(), Verdict::does_not_fit);
  // (8 + 1) x 32 x 602112 bytes are 165 MiB, for which 256 are enough
  EXPECT_TRUE(std::any_of(fit.advice.begin(), fit.advice.end(),
                          [](const HostAdvice& a) { return a.change.find("--shm-size=256m") != std::string::npos; }));
}

TEST(HostFit, WhatFitsNeedsNoAdvice) {
  HostTarget target;
  target.total = Bytes{256 * kGiB.count};
  target.shm = Bytes{128 * kGiB.count};
  const HostFit fit = host_fit(loader_job(2, 2, 1, kMiB), facts(), target);
  EXPECT_EQ(fit.overall(), Verdict::fits);
  EXPECT_TRUE(fit.advice.empty());
}

TEST(HostFit, RoomIsWhatStillFits) {
  Job job = loader_job(2, 2, 32, 4 * kMiB);
  job.host.dataset_size = 1000;
  HostTarget target;
  target.total = Bytes{16 * kGiB.count};
  target.system = reserve_of(kGiB, "test");
  const HostRoom room = host_fit(job, facts(), target).room;
  ASSERT_TRUE(room.workers);
  ASSERT_LT(*room.workers, HostRoom::kMostWorkers);
  EXPECT_GE(room.cache_bytes.count, 1000 * 4 * kMiB);
  EXPECT_EQ(room.cache, Verdict::fits);
  const auto verdict_with = [&](int64_t workers) {
    Job other = job;
    other.host.workers = workers;
    return host_fit(other, facts(), target).ram;
  };
  EXPECT_EQ(verdict_with(*room.workers), Verdict::fits);
  EXPECT_NE(verdict_with(*room.workers + 1), Verdict::fits);
  job.host.dataset_size = 100'000;
  EXPECT_EQ(host_fit(job, facts(), target).room.cache, Verdict::does_not_fit);
  job.host.item_bytes = Bytes{int64_t{1} << 52};  // 64 workers of these overflow
  EXPECT_FALSE(host_fit(job, facts(), target).room.workers);
}

// ---- bad input ------------------------------------------------------------------------------------------------------

TEST(HostSettings, WhatNoLoaderAcceptsIsAnError) {
  Job job;
  const auto set = [&](const char* key, nlohmann::json value) { return [&job, key, value] { apply_setting(job, key, value, "test"); }; };
  expect_error(set("workers", -1), "workers -1");
  expect_error(set("workers", "four"), "workers");
  expect_error(set("workers", 1.5), "workers");
  expect_error(set("prefetch_factor", 0), "prefetch_factor");
  expect_error(set("prefetch_factor", -2), "prefetch_factor");
  expect_error(set("start_method", "clone"), "start_method 'clone'");
  expect_error(set("cache", "gpu"), "cache 'gpu'");
  expect_error(set("load", "magic"), "load 'magic'");
  expect_error(set("save", 3), "save");
  expect_error(set("item_bytes", 0), "item_bytes");
  expect_error(set("item_bytes", "many"), "item_bytes");
  expect_error(set("dataset_bytes", -5), "dataset_bytes");
  expect_error(set("dataset_size", 0), "dataset_size");
  expect_error(set("ranks_per_host", 0), "ranks_per_host");
}

TEST(HostSettings, WhatDoesNotGoTogetherIsAProblemAsInPyTorch) {
  HostSettings h;
  const auto problem = [&] {
    Problems out;
    check(h, out);
    return out.empty() ? "" : out.front().what;
  };
  EXPECT_EQ(problem(), "");
  h.prefetch_factor = 4;
  EXPECT_NE(problem().find("prefetch_factor 4"), std::string::npos) << problem();
  h.prefetch_factor.reset();
  h.persistent_workers = true;
  EXPECT_NE(problem().find("persistent_workers"), std::string::npos) << problem();
  h.persistent_workers = false;
  h.cache = CacheKind::ram;
  EXPECT_NE(problem().find("how many items"), std::string::npos) << problem();
  h.cache = CacheKind::none;
  h.cache_item_bytes = Bytes{1};
  EXPECT_NE(problem().find("cache is none"), std::string::npos) << problem();
}

TEST(HostSettings, SizesThatOverflowAreErrors) {
  Job job = loader_job(int64_t{1} << 31, int64_t{1} << 31, int64_t{1} << 31, int64_t{1} << 60);
  expect_error([&] { host_memory(job, {}); }, "does not fit in 63 bits");
  job = loader_job(int64_t{1} << 31, int64_t{1} << 31, 1 << 20, 1 << 20);
  expect_error([&] { host_memory(job, {}); }, "does not fit in 63 bits");
  job = loader_job(1, 1, 1, 1);
  job.host.cache = CacheKind::ram;
  job.host.dataset_size = int64_t{1} << 31;
  job.host.cache_item_bytes = Bytes{int64_t{1} << 40};
  expect_error([&] { host_memory(job, {}); }, "does not fit in 63 bits");
}

TEST(HostSettings, SizesAreBytesOrTextWithAUnit) {
  Job job;
  apply_setting(job, "item_bytes", 4096, "test");
  EXPECT_EQ(job.host.item_bytes->count, 4096);
  apply_setting(job, "item_bytes", "6MiB", "test");
  EXPECT_EQ(job.host.item_bytes->count, 6 * kMiB);
}

}  // namespace
}  // namespace plimsoll::host_test
