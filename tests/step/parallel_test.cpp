// DistributedDataParallel and ZeRO-1 on one rank: settings and their errors, and what the buckets cost. Equality with recorded runs
// is in truth_test.cpp (tests/truth/ddp.jsonl).
#include "job/parallel.h"
#include "job/distribution.h"

#include <gtest/gtest.h>

#include <deque>
#include <nlohmann/json.hpp>

#include "estimate/estimate.h"
#include "job/settings.h"
#include "model/resolve.h"
#include "simulate.h"
#include "step/train.h"
#include "step/zero1.h"

namespace plimsoll::parallel_test {
namespace {

using Json = nlohmann::json;

Job small_job() {
  Job job;
  job.model = "gpt2";
  job.batch = 1;
  job.seq = 32;
  job.origin["seq"] = "test";
  resolve_model(job);
  apply_setting(job, "config", {{"n_layer", 2}, {"n_embd", 64}, {"n_head", 4}, {"vocab_size", 500}}, "test");
  return job;
}

template <class F>
std::string message_of(F f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

int64_t bytes_of(const Trace& trace, Category c) {
  int64_t sum = 0;
  for (const StorageRecord& s : trace.storages)
    if (s.born_as == c) sum += s.bytes;
  return sum;
}

TEST(Parallel, AFlagAndAMappingGiveTheSameSettings) {
  Job file = small_job(), flag = small_job();
  apply_setting(file, "ddp", {{"world", 8}, {"bucket_view", true}, {"bucket_mb", 50}}, "file");
  apply_setting(flag, "ddp", "world=8,bucket_view=true,bucket_mb=50", "--ddp");
  EXPECT_EQ(to_json(*file.parallel.ddp).dump(), to_json(*flag.parallel.ddp).dump());
  EXPECT_TRUE(flag.parallel.ddp->bucket_view);
  apply_setting(flag, "ddp", false, "--ddp");
  EXPECT_FALSE(is_distributed(flag));
}

TEST(Parallel, WrongValuesAreErrorsThatNameThem) {
  EXPECT_NE(message_of([] { parse_ddp({{"world", 0}}); }).find("world 0"), std::string::npos);
  EXPECT_NE(message_of([] { parse_ddp({{"world", -3}}); }).find("world -3"), std::string::npos);
  EXPECT_NE(message_of([] { parse_ddp(Json::object()); }).find("world is not given"), std::string::npos);
  EXPECT_NE(message_of([] { parse_ddp(true); }).find("world is not given"), std::string::npos);
  EXPECT_NE(message_of([] { parse_ddp("world"); }).find("'world' is not KEY=VALUE"), std::string::npos);
  EXPECT_NE(message_of([] { parse_ddp({{"wrld", 8}}); }).find("'wrld' is not known"), std::string::npos);
  EXPECT_NE(message_of([] { parse_ddp({{"world", 8}, {"bucket_mb", -1}}); }).find("bucket_mb -1"), std::string::npos);
  EXPECT_NE(message_of([] { parse_ddp({{"world", 8}, {"bucket_mb", 1e30}}); }).find("bucket_mb 1e+30"), std::string::npos);
  EXPECT_NE(message_of([] { parse_zero1({{"world", 8}, {"rank", 8}}); }).find("rank 8 is not one of 0 to 7"), std::string::npos);
  EXPECT_NE(message_of([] { parse_zero1({{"world", 8}, {"rank", -1}}); }).find("rank -1"), std::string::npos);
}

TEST(Parallel, ContradictionsOfTheTwoSettingsAreErrors) {
  Job job = small_job();
  job.parallel.ddp = parse_ddp({{"world", 8}});
  job.parallel.zero1 = parse_zero1({{"world", 4}});
  EXPECT_NE(message_of([&] { simulate(job); }).find("world 4 is not that of ddp, 8"), std::string::npos);
  job.parallel.zero1 = parse_zero1({{"world", 8}, {"ddp", false}});
  EXPECT_NE(message_of([&] { simulate(job); }).find("ddp: false"), std::string::npos);
}

TEST(Parallel, BucketsHoldEveryGradientOnceMore) {
  Job job = small_job();
  const Simulation alone = simulate(job);
  job.parallel.ddp = parse_ddp({{"world", 8}});
  const Simulation ddp = simulate(job);
  EXPECT_EQ(bytes_of(alone.trace, Category::ddp_bucket), 0);
  EXPECT_GE(bytes_of(ddp.trace, Category::ddp_bucket), 2 * 4 * ddp.trainable);  // at the start, and rebuilt
}

TEST(Parallel, EachParameterBelongsToOneRankAndTheLargestIsOnRankZero) {
  Tape tape;
  std::deque<Parameter> store(7);
  std::vector<Parameter*> all;
  for (int64_t elements : {3, 8, 1, 8, 2, 5, 1}) {
    Parameter& p = store[all.size()];
    make_parameter(tape, p, {elements}, DType::float32);
    all.push_back(&p);
  }
  const auto shares = zero1_shares(all, 3);
  EXPECT_EQ(shares[0], (std::vector<Parameter*>{all[1], all[4]}));
  EXPECT_EQ(shares[1], (std::vector<Parameter*>{all[3], all[2]}));
  EXPECT_EQ(shares[2], (std::vector<Parameter*>{all[5], all[0], all[6]}));
  EXPECT_TRUE(zero1_shares(all, 9)[8].empty());
}

TEST(Parallel, SeveralRanksNeedACommunicator) {
  Job job = small_job();
  auto has_nccl = [&] {
    const Estimate e = estimate(job);
    for (const Overhead& o : e.memory->overheads)
      if (o.name == "NCCL") return true;
    return false;
  };
  EXPECT_FALSE(has_nccl());
  job.parallel.zero1 = parse_zero1({{"world", 2}});
  EXPECT_TRUE(has_nccl());
}

}  // namespace
}  // namespace plimsoll::parallel_test
