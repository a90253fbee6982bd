// The batch scaler: what it decides in single cases, and what holds whatever happens, over thousands of random runs.
#include <gtest/gtest.h>
#include <plimsoll.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <set>
#include <thread>

#include "supervise/batch_scaler.h"
#include "util/error.h"

namespace plimsoll::batch_scaler_test {
namespace {

namespace fs = std::filesystem;

ScalerSettings settings(int64_t global, int64_t batch, int64_t minimum = 1, int64_t maximum = 0) {
  ScalerSettings s;
  s.global_batch = global;
  s.batch = batch;
  s.minimum = minimum;
  s.maximum = maximum;
  s.warmup_steps = 3;
  return s;
}

StepReport oom() {
  StepReport r;
  r.out_of_memory = true;
  return r;
}
StepReport whole(std::optional<int64_t> peak = {}, std::optional<int64_t> limit = {}) {
  StepReport r;
  r.peak = peak;
  r.limit = limit;
  return r;
}
std::vector<int64_t> sizes(const BatchScaler& s) {
  std::vector<int64_t> out;
  for (const MicroBatch& m : s.step()) out.push_back(m.size);
  return out;
}
using Sizes = std::vector<int64_t>;

TEST(Parts, AreEvenAndExact) {
  EXPECT_EQ(parts_of(16, 16, 1), (Sizes{16}));
  EXPECT_EQ(parts_of(16, 12, 1), (Sizes{8, 8}));
  EXPECT_EQ(parts_of(10, 4, 1), (Sizes{4, 3, 3}));
  EXPECT_EQ(parts_of(3, 1, 1), (Sizes{1, 1, 1}));
  EXPECT_EQ(parts_of(10, 6, 6), (Sizes{6, 4})) << "two of 5 would be below the minimum";
}

TEST(Parts, AreEqualForTrainersThatKnowOneSize) {
  EXPECT_EQ(parts_of(12, 5, 1, true), (Sizes{4, 4, 4}));
  EXPECT_EQ(parts_of(7, 6, 1, true), (Sizes{1, 1, 1, 1, 1, 1, 1}));
  ScalerSettings s = settings(12, 12);
  s.equal_parts = true;
  BatchScaler scaler(s);
  for (const int64_t size : {6, 4, 3, 2, 1}) EXPECT_EQ(scaler.report(oom()).after, size);
  EXPECT_EQ(scaler.report(oom()).action, ScalerAction::give_up);
  BatchScaler grows(s);
  for (int i = 0; i < 3; ++i) grows.report(oom());
  EXPECT_EQ(grows.try_larger("").action, ScalerAction::go_on) << "4 failed";
  grows.more_memory();
  EXPECT_EQ(grows.try_larger("all quiet").after, 4);
  EXPECT_EQ(grows.try_larger("").after, 6);
  s.minimum = 5, s.maximum = 5;
  EXPECT_THROW(BatchScaler{s}, Error) << "5 does not divide 12";
}

TEST(Scaler, ShrinksByAQuarterAndReplays) {
  ScalerSettings s = settings(1024, 16);
  BatchScaler scaler(s);
  EXPECT_EQ(scaler.step().size(), 64u);
  std::vector<int64_t> seen;
  for (int i = 0; i < 4; ++i) {
    const ScalerDecision d = scaler.report(oom());
    EXPECT_EQ(d.action, ScalerAction::replay);
    EXPECT_NE(d.reason.find("out of memory with a micro-batch of " + std::to_string(d.before)), std::string::npos);
    seen.push_back(d.after);
    const Sizes parts = sizes(scaler);
    EXPECT_EQ(std::accumulate(parts.begin(), parts.end(), int64_t{0}), 1024);
  }
  EXPECT_EQ(seen, (Sizes{12, 9, 6, 4}));
  double weight = 0;
  for (const MicroBatch& m : scaler.step()) weight += m.weight;
  EXPECT_DOUBLE_EQ(weight, 1);
}

TEST(Scaler, TakesThePredictedSize) {
  BatchScaler scaler(settings(64, 64));
  scaler.predict_with([](int64_t failed, std::optional<int64_t> limit) { return failed == 64 && limit == 1000 ? 20 : 0; });
  StepReport r = oom();
  r.limit = 1000;
  const ScalerDecision d = scaler.report(r);
  EXPECT_EQ(d.after, 16) << "four of 16: no larger one makes three of at most 20";
  EXPECT_NE(d.reason.find("by simulation"), std::string::npos) << d.reason;
  EXPECT_EQ(scaler.report(oom()).after, 11) << "nothing is predicted any more: 12 in six parts";
  scaler.predict_with([](int64_t, std::optional<int64_t>) { return 50; });
  EXPECT_LT(scaler.report(oom()).after, 11) << "a prediction that what failed would fit is none";
}

TEST(Scaler, GivesUpAtTheMinimumAndSaysWhy) {
  BatchScaler scaler(settings(8, 3, 3));
  const ScalerDecision d = scaler.report(oom());
  EXPECT_EQ(d.action, ScalerAction::give_up);
  EXPECT_EQ(d.reason, "out of memory with a micro-batch of 3, and 3 is the minimum");
  EXPECT_EQ(scaler.state(), ScalerState::stopped);
  EXPECT_EQ(scaler.report(whole()).action, ScalerAction::give_up) << "and stays so";
  ScalerSettings s = settings(4096, 4096);
  s.most_failures = 3;
  BatchScaler often(s);
  EXPECT_EQ(often.report(oom()).action, ScalerAction::replay);
  EXPECT_EQ(often.report(oom()).action, ScalerAction::replay);
  const ScalerDecision last = often.report(oom());
  EXPECT_EQ(last.action, ScalerAction::give_up);
  EXPECT_NE(last.reason.find("3 times without a whole step"), std::string::npos) << last.reason;
}

TEST(Scaler, GrowsAfterCalmStepsWithRoom) {
  BatchScaler scaler(settings(64, 8));
  EXPECT_EQ(scaler.report(whole(10, 100)).action, ScalerAction::go_on);
  EXPECT_EQ(scaler.report(whole(10, 100)).action, ScalerAction::go_on);
  const ScalerDecision d = scaler.report(whole(10, 100));
  EXPECT_EQ(d.action, ScalerAction::resize);
  EXPECT_EQ(d.after, 10);
  EXPECT_EQ(scaler.state(), ScalerState::trial);
  for (int i = 0; i < 2; ++i) scaler.report(whole(12, 100));
  EXPECT_EQ(scaler.report(whole(12, 100)).action, ScalerAction::resize) << "steady, and on";
  BatchScaler full(settings(64, 8));
  for (int i = 0; i < 100; ++i) EXPECT_EQ(full.report(whole(80, 100)).action, ScalerAction::go_on) << "10 would take 100";
  BatchScaler blind(settings(64, 8));
  for (int i = 0; i < 100; ++i) EXPECT_EQ(blind.report(whole()).action, ScalerAction::go_on) << "nothing measured";
  BatchScaler capped(settings(64, 8, 1, 9));
  for (int i = 0; i < 100; ++i) EXPECT_LE((capped.report(whole(1, 100)), capped.batch()), 9);
}

TEST(Scaler, ATrialThatFailsGoesBackAndIsNotRepeated) {
  BatchScaler scaler(settings(64, 8));
  for (int i = 0; i < 3; ++i) scaler.report(whole(10, 100));
  ASSERT_EQ(scaler.batch(), 10);
  const ScalerDecision d = scaler.report(oom());
  EXPECT_EQ(d.after, 8);
  EXPECT_NE(d.reason.find("the size before"), std::string::npos) << d.reason;
  for (int i = 0; i < 200; ++i) {
    const ScalerDecision later = scaler.report(whole(10, 100));
    EXPECT_LT(later.after, 10) << "10 failed";
  }
  scaler.more_memory();
  bool again = false;
  for (int i = 0; i < 20; ++i) again = again || scaler.report(whole(10, 100)).after >= 10;
  EXPECT_TRUE(again) << "something changed";
}

TEST(Scaler, MoreFreeMemoryByMeasurementIsAChange) {
  BatchScaler scaler(settings(16, 16));
  StepReport r = oom();
  r.limit = 100;
  scaler.report(r);
  ASSERT_EQ(scaler.batch(), 8);
  for (int i = 0; i < 50; ++i) scaler.report(whole(20, 104));
  EXPECT_EQ(scaler.batch(), 8);
  for (int i = 0; i < 4; ++i) scaler.report(whole(20, 200));
  EXPECT_EQ(scaler.batch(), 16);
}

TEST(Scaler, ThrashingCountsAsOutOfMemory) {
  BatchScaler scaler(settings(64, 16));
  StepReport r = whole(99, 100);
  r.retries = 4;
  EXPECT_EQ(scaler.report(r).action, ScalerAction::go_on);
  EXPECT_EQ(scaler.report(r).action, ScalerAction::go_on);
  const ScalerDecision d = scaler.report(r);
  EXPECT_EQ(d.action, ScalerAction::resize) << "the step was whole: nothing is to be replayed";
  EXPECT_LT(d.after, 16);
  EXPECT_NE(d.reason.find("thrashing"), std::string::npos) << d.reason;

  BatchScaler slow(settings(64, 16));
  r = whole(99, 100);
  r.seconds = 1;
  slow.report(r);
  r.seconds = 8;
  slow.report(r), slow.report(r);
  EXPECT_LT(slow.report(r).after, 16);
  BatchScaler loader(settings(64, 16));
  r = whole(30, 100);
  r.seconds = 1;
  loader.report(r);
  r.seconds = 8;
  for (int i = 0; i < 5; ++i) EXPECT_GE(loader.report(r).after, 16) << "slow with memory to spare is something else";
}

TEST(Scaler, AnEvaluationIsItsOwnAffair) {
  ScalerSettings s = settings(64, 16);
  s.evaluation_batch = 2;
  BatchScaler scaler(s);
  StepReport r = oom();
  r.phase = ScalerPhase::evaluation;
  const ScalerDecision d = scaler.report(r);
  EXPECT_EQ(d.action, ScalerAction::replay);
  EXPECT_EQ(d.after, 1);
  EXPECT_EQ(scaler.batch(), 16);
  EXPECT_EQ(scaler.evaluation_batch(), 1);
  EXPECT_EQ(scaler.report(r).action, ScalerAction::give_up);
  EXPECT_EQ(scaler.report(whole()).action, ScalerAction::go_on) << "training goes on";
}

TEST(Scaler, RefusesSettingsThatCannotBe) {
  const auto message = [](const char* text) -> std::string {
    try {
      BatchScaler scaler(scaler_settings(nlohmann::json::parse(text)));
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(message(R"({"batch": 0})"), "[scaler] batch 0 is below 1");
  EXPECT_EQ(message(R"({"global_batch": 10, "ranks": 4})"), "[scaler] a global batch of 10 is not the same on each of 4 ranks");
  EXPECT_EQ(message(R"({"batch": 8, "minimum": 9})"), "[scaler] minimum 9 is above 8, the most that a micro-batch can be");
  EXPECT_EQ(message(R"({"bacth": 8})"), "[scaler] there is no setting 'bacth'");
  EXPECT_EQ(message(R"({"shrink": 1.5})"), "[scaler] shrink 1.5 is not above 0 and at most 0.9");
  EXPECT_NE(message(R"({"batch": "many"})"), "");
  EXPECT_NE(message(R"({"global_batch": 1000000000000039, "minimum": 1000000000, "equal_parts": true})"), "") << "at once";
  EXPECT_NE(message(R"([])"), "");
  EXPECT_EQ(message(R"({"batch": 8})"), "");
}

TEST(Scaler, IsRestoredAsItWas) {
  BatchScaler first(settings(64, 16));
  first.report(oom());
  first.report(whole(50, 100));
  BatchScaler second(settings(64, 16));
  second.restore(nlohmann::json::parse(first.saved().dump()));
  EXPECT_EQ(second.saved(), first.saved());
  EXPECT_EQ(second.report(oom()).after, first.report(oom()).after);
  EXPECT_THROW(second.restore({{"state", "merry"}}), Error);
  EXPECT_THROW(second.restore({{"state", "steady"}, {"batch", 4096}}), Error);
  EXPECT_THROW(second.restore({{"state", "steady"}, {"batch", 8}, {"peaks", {1}}}), Error);
  EXPECT_THROW(second.restore({{"state", "steady"}, {"batch", 8}, {"peaks", {{-3, 1}}}}), Error);
}

// A device that holds `capacity` samples beside other things, which come and go.
TEST(Scaler, HoldsItsPromisesWhateverHappens) {
  std::mt19937_64 random(20261116);
  const auto pick = [&](int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random); };
  int64_t ended = 0, grown = 0, replayed = 0;
  for (int run = 0; run < 5000; ++run) {
    ScalerSettings s;
    s.ranks = pick(1, 4);
    const int64_t share = pick(1, 200);
    s.global_batch = share * s.ranks;
    s.minimum = pick(1, share);
    s.maximum = pick(s.minimum, share);
    s.batch = pick(1, share);
    s.warmup_steps = pick(0, 5);
    s.most_failures = pick(1, 12);
    s.shrink = 0.05 * static_cast<double>(pick(1, 18));
    BatchScaler scaler(s);
    if (run % 3 == 0) scaler.predict_with([&](int64_t, std::optional<int64_t>) { return pick(-5, 300); });
    int64_t capacity = pick(0, share), last_failed = 0;
    std::set<int64_t> failed;
    for (int step = 0; step < 300; ++step) {
      ASSERT_GE(scaler.batch(), s.minimum);
      ASSERT_LE(scaler.batch(), s.maximum);
      const Sizes parts = sizes(scaler);
      ASSERT_EQ(std::accumulate(parts.begin(), parts.end(), int64_t{0}), share);
      double weight = 0;
      for (const MicroBatch& m : scaler.step()) {
        ASSERT_GE(m.size, 1);
        ASSERT_LE(m.size, scaler.batch());
        weight += m.weight;
      }
      ASSERT_NEAR(weight, 1, 1e-12);
      ASSERT_EQ(*std::max_element(parts.begin(), parts.end()), scaler.batch());
      ASSERT_FALSE(failed.contains(scaler.batch())) << "tried again though nothing changed";
      const int64_t size = scaler.batch();
      StepReport r;
      r.out_of_memory = size > capacity || pick(0, 40) == 0;
      if (pick(0, 3)) r.peak = 1000 + 100 * size, r.limit = 1000 + 100 * capacity;
      r.retries = pick(0, 20) == 0 ? 3 : 0;
      if (pick(0, 1)) r.seconds = static_cast<double>(pick(1, 100));
      if (run % 5 == 0 && pick(0, 60) == 0) {
        scaler.more_memory();
        capacity = pick(capacity, share);
        if (!r.out_of_memory) failed.clear();
      }
      const std::optional<int64_t> limit = r.limit;
      const ScalerDecision d = scaler.report(r);
      if (r.out_of_memory) {
        ASSERT_NE(d.action, ScalerAction::go_on);
        if (d.action == ScalerAction::replay) {
          ASSERT_LT(d.after, size);
          ASSERT_NE(size, last_failed) << "twice in a row";
          failed.insert(size);
          last_failed = size;
          ++replayed;
        }
      } else {
        ASSERT_NE(d.action, ScalerAction::replay);
        last_failed = 0;
        if (run % 5 == 0 && limit) failed.clear();  // more of it is a change, too: a test above checks how much
        if (d.action == ScalerAction::resize && d.after < size) failed.insert(size);
        grown += d.after > size;
      }
      ASSERT_EQ(d.after, scaler.batch());
      if (d.action == ScalerAction::give_up) {
        ASSERT_FALSE(d.reason.empty());
        ++ended;
        break;
      }
    }
  }
  EXPECT_GT(ended, 100);
  EXPECT_GT(grown, 1000);
  EXPECT_GT(replayed, 1000);
}

// What comes to a scaler: failures, measurements, thrashing, evaluations, word that there is more memory.
StepReport anything(std::mt19937_64& random, const BatchScaler& scaler) {
  const auto one_in = [&](uint64_t n) { return random() % n == 0; };
  StepReport r;
  if (one_in(10)) r.phase = ScalerPhase::evaluation;
  r.out_of_memory = one_in(12);
  if (!one_in(4)) r.peak = 1000 + 100 * scaler.batch(), r.limit = static_cast<int64_t>(2000 + random() % 20000);
  if (one_in(5)) r.retries = 2;
  if (one_in(2)) r.seconds = 1 + static_cast<double>(random() % 30);
  return r;
}

// A run that was stopped decides as one that was not, wherever that was.
TEST(Scaler, WhatWasSavedGoesOnTheSame) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    std::mt19937_64 random(seed);
    ScalerSettings s = settings(static_cast<int64_t>(1 + random() % 100), static_cast<int64_t>(1 + random() % 20));
    s.most_failures = 1000;
    BatchScaler whole(s);
    auto stopped = std::make_unique<BatchScaler>(s);
    for (int step = 0; step < 120; ++step) {
      if (random() % 7 == 0) {
        const std::string saved = stopped->saved().dump();
        stopped = std::make_unique<BatchScaler>(s);
        stopped->restore(nlohmann::json::parse(saved));
      }
      const StepReport r = anything(random, whole);
      const ScalerDecision a = whole.report(r), b = stopped->report(r);
      ASSERT_EQ(a.action, b.action) << "seed " << seed << " step " << step;
      ASSERT_EQ(a.after, b.after);
      ASSERT_EQ(a.reason, b.reason);
      ASSERT_EQ(sizes(whole), sizes(*stopped));
      ASSERT_EQ(whole.evaluation_batch(), stopped->evaluation_batch());
    }
  }
}

// Each rank has its own luck; whatever that is, all do the same, and an evaluation is seen by its rank alone.
TEST(Scaler, RanksDoTheSameWhateverHappens) {
  constexpr int kRanks = 3;
  for (uint64_t seed = 0; seed < 15; ++seed) {
    auto agreements = agreement_of_threads(kRanks);
    std::vector<std::vector<Sizes>> steps(kRanks);
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < kRanks; ++rank)
      threads.emplace_back([&, rank] {
        ScalerSettings s = settings(kRanks * static_cast<int64_t>(1 + seed * 7 % 90), static_cast<int64_t>(1 + seed % 13));
        s.ranks = kRanks;
        s.most_failures = 1000;
        BatchScaler scaler(s);
        scaler.agree_with(std::move(agreements[rank]));
        std::mt19937_64 random(seed * kRanks + rank);
        for (int step = 0; step < 80;) {
          const StepReport r = anything(random, scaler);
          scaler.report(r);
          if (r.phase == ScalerPhase::evaluation) continue;
          steps[rank].push_back(sizes(scaler));
          ++step;
        }
      });
    for (std::thread& t : threads) t.join();
    for (const auto& one : steps) ASSERT_EQ(one, steps[0]) << "seed " << seed;
    for (const Sizes& parts : steps[0])
      ASSERT_EQ(std::accumulate(parts.begin(), parts.end(), int64_t{0}), static_cast<int64_t>(1 + seed * 7 % 90));
  }
}

// An out-of-memory at every size, always: it ends, after no more failures than there are sizes.
TEST(Scaler, AlwaysEnds) {
  for (int64_t share = 1; share <= 300; ++share)
    for (const int64_t minimum : {int64_t{1}, (share + 1) / 2, share}) {
      ScalerSettings s = settings(share, share, minimum);
      s.most_failures = 1000000;
      BatchScaler scaler(s);
      int64_t failures = 0;
      while (scaler.report(oom()).action != ScalerAction::give_up) ASSERT_LE(++failures, share);
      EXPECT_EQ(scaler.batch(), minimum) << share;
    }
}

void ranks_agree(std::vector<std::unique_ptr<Agreement>> agreements) {
  const int ranks = static_cast<int>(agreements.size());
  std::vector<std::vector<int64_t>> seen(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      ScalerSettings s = settings(64 * ranks, 32);
      s.ranks = ranks;
      s.most_failures = 100;
      BatchScaler scaler(s);
      scaler.agree_with(std::move(agreements[static_cast<size_t>(rank)]));
      std::mt19937_64 random(static_cast<uint64_t>(rank));
      for (int step = 0; step < 60; ++step) {
        StepReport r = whole(10 + rank, 100);
        r.out_of_memory = random() % 20 == 0;
        const ScalerDecision d = scaler.report(r);
        seen[static_cast<size_t>(rank)].push_back(d.after);
        seen[static_cast<size_t>(rank)].push_back(static_cast<int64_t>(d.action));
      }
    });
  for (std::thread& t : threads) t.join();
  for (const auto& one : seen) EXPECT_EQ(one, seen[0]);
  EXPECT_GT(std::set<int64_t>(seen[0].begin(), seen[0].end()).size(), 3u) << "something happened";
}

struct Folder {
  fs::path path = fs::temp_directory_path() /
                  ("plimsoll_scaler_" + std::to_string(getpid()) + "_" + ::testing::UnitTest::GetInstance()->current_test_info()->name());
  Folder() { fs::create_directories(path); }
  ~Folder() { fs::remove_all(path); }
};

TEST(Agreement, OfThreads) { ranks_agree(agreement_of_threads(3)); }

TEST(Agreement, ByFiles) {
  const Folder folder;
  std::vector<std::unique_ptr<Agreement>> agreements;
  for (int rank = 0; rank < 3; ++rank) agreements.push_back(agreement_by_files(folder.path / "run", rank, 3));
  ranks_agree(std::move(agreements));
  EXPECT_LE(std::distance(fs::directory_iterator(folder.path / "run"), fs::directory_iterator()), 9) << "old rounds are deleted";
}

TEST(Agreement, NamesWhoDoesNotAnswer) {
  const Folder folder;
  const auto expect = [](Agreement& alone) {
    try {
      alone.least({1});
      FAIL();
    } catch (const Error& e) {
      EXPECT_STREQ(e.what(), "[agreement] no answer from rank 1, 2 in 0.02 s");
    }
  };
  expect(*agreement_of_threads(3, Patience(20))[0]);
  expect(*agreement_by_files(folder.path, 0, 3, Patience(20)));
  EXPECT_THROW(agreement_by_files(folder.path, 3, 3), Error);
  std::ofstream(folder.path / "file") << "x";
  EXPECT_THROW(agreement_by_files(folder.path / "file", 0, 3), Error);
  EXPECT_THROW(agreement_by_call(2, [](std::vector<int64_t>&) { return false; })->least({1}), Error);
}

TEST(ScalerInC, DoesTheSame) {
  plimsoll_answer* error = nullptr;
  plimsoll_scaler* s = plimsoll_scaler_new(R"({"global_batch": 64, "batch": 16, "warmup_steps": 1})", &error);
  ASSERT_NE(s, nullptr);
  EXPECT_EQ(error, nullptr);
  EXPECT_EQ(plimsoll_scaler_count(s), 4u);
  EXPECT_EQ(plimsoll_scaler_size(s, 3), 16);
  EXPECT_EQ(plimsoll_scaler_size(s, 4), 0);
  EXPECT_DOUBLE_EQ(plimsoll_scaler_weight(s, 0), 0.25);
  plimsoll_scaler_predict_with(
      s, [](void*, int64_t failed, int64_t limit) { return failed / 2 + limit; }, nullptr);
  EXPECT_EQ(plimsoll_scaler_out_of_memory(s, nullptr), PLIMSOLL_REPLAY);
  EXPECT_EQ(plimsoll_scaler_batch(s), 8);
  EXPECT_NE(std::string(plimsoll_scaler_reason(s)).find("by simulation"), std::string::npos);
  const plimsoll_measured measured = {10, 100, 0, 1.5};
  EXPECT_EQ(plimsoll_scaler_step_done(s, &measured), PLIMSOLL_RESIZE);
  EXPECT_EQ(plimsoll_scaler_evaluation_out_of_memory(s), PLIMSOLL_REPLAY);
  EXPECT_EQ(plimsoll_scaler_evaluation_batch(s), 12);
  const std::string state = plimsoll_scaler_state(s);
  plimsoll_scaler* other = plimsoll_scaler_new(R"({"global_batch": 64, "batch": 16})", nullptr);
  EXPECT_EQ(plimsoll_scaler_restore(other, state.c_str(), nullptr), 1);
  EXPECT_EQ(plimsoll_scaler_batch(other), plimsoll_scaler_batch(s));
  EXPECT_EQ(plimsoll_scaler_restore(other, "{", &error), 0);
  EXPECT_STREQ(plimsoll_answer_message(error), "[scaler] this is no JSON");
  plimsoll_answer_free(error);
  plimsoll_scaler_free(other);
  plimsoll_scaler_free(s);
}

TEST(ScalerInC, SurvivesMisuse) {
  plimsoll_answer* error = nullptr;
  EXPECT_EQ(plimsoll_scaler_new(nullptr, &error), nullptr);
  EXPECT_EQ(plimsoll_answer_code(error), PLIMSOLL_USAGE);
  plimsoll_answer_free(error);
  EXPECT_EQ(plimsoll_scaler_new(R"({"batch": -1})", &error), nullptr);
  EXPECT_EQ(plimsoll_answer_code(error), PLIMSOLL_BAD_INPUT);
  plimsoll_answer_free(error);
  EXPECT_EQ(plimsoll_scaler_new("{", nullptr), nullptr);
  EXPECT_EQ(plimsoll_scaler_step_done(nullptr, nullptr), PLIMSOLL_GIVE_UP);
  EXPECT_EQ(plimsoll_scaler_count(nullptr), 0u);
  EXPECT_STREQ(plimsoll_scaler_state(nullptr), "");
  EXPECT_EQ(plimsoll_scaler_agree_by_files(nullptr, "/tmp", 0, nullptr), 0);
  plimsoll_scaler_more_memory(nullptr);
  plimsoll_scaler_free(nullptr);
  plimsoll_scaler* s = plimsoll_scaler_new(R"({"batch": 4, "ranks": 2})", nullptr);
  plimsoll_scaler_agree_with(
      s, [](void*, int64_t*, size_t) { return 0; }, nullptr);
  EXPECT_EQ(plimsoll_scaler_step_done(s, nullptr), PLIMSOLL_GIVE_UP);
  EXPECT_NE(std::string(plimsoll_scaler_reason(s)).find("failed"), std::string::npos);
  plimsoll_scaler_free(s);
}

}  // namespace
}  // namespace plimsoll::batch_scaler_test
