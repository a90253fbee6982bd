// FullyShardedDataParallel (FSDP1) and DeepSpeed's ZeRO on one rank: settings and their errors, and the bytes that stay between steps.
// Equality with recorded runs is in truth_test.cpp (tests/truth/fsdp1.jsonl, tests/truth/zero.jsonl).
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "allocator/timeline.h"
#include "job/settings.h"
#include "model/resolve.h"
#include "simulate.h"
#include "step/train.h"
#include "support.h"

namespace plimsoll::flat_sharding_test {
namespace {

using Json = nlohmann::json;

Job flat_llama(Precision precision = Precision::fp32) {
  Job job;
  job.model = "llama";
  job.batch = 1;
  job.seq = 32;
  job.precision = precision;
  job.origin["seq"] = "test";
  resolve_model(job);
  apply_setting(job, "config",
                {{"num_hidden_layers", 3},
                 {"hidden_size", 64},
                 {"intermediate_size", 96},
                 {"num_attention_heads", 8},
                 {"num_key_value_heads", 4},
                 {"vocab_size", 512}},
                "test");
  return job;
}

Job with(Job job, const char* setting, const Json& value) {
  apply_setting(job, setting, value, "test");
  return job;
}

bool names(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(Fsdp1, AFlagAndAMappingGiveTheSameSettings) {
  const Job file = with(flat_llama(), "fsdp1", {{"world", 8}, {"strategy", "SHARD_GRAD_OP"}, {"param_dtype", "bf16"}});
  const Job flag = with(flat_llama(), "fsdp1", "world=8,strategy=2,param_dtype=bf16");
  EXPECT_EQ(to_json(*file.parallel.fsdp1).dump(), to_json(*flag.parallel.fsdp1).dump());
  EXPECT_EQ(to_json(parse_fsdp1(to_json(*flag.parallel.fsdp1))).dump(), to_json(*flag.parallel.fsdp1).dump());
}

TEST(Fsdp1, WrongValuesAreErrorsThatNameTheNearestValidOnes) {
  EXPECT_TRUE(names(error_of([] { parse_fsdp1({{"rank", 1}}); }), "world is not given"));
  EXPECT_TRUE(names(error_of([] { parse_fsdp1({{"world", 8}, {"strategy", "half_shard"}}); }), "known: full_shard"));
  EXPECT_TRUE(names(error_of([] { parse_fsdp1({{"world", 8}, {"replicas", 2}}); }), "take strategy hybrid_shard"));
  EXPECT_TRUE(names(error_of([] {
                      parse_fsdp1({{"world", 8}, {"strategy", "hybrid_shard"}, {"replicas", 3}});
                    }),
                    "take one of 1, 2, 4, 8"));
  EXPECT_TRUE(names(error_of([] { parse_fsdp1({{"world", 8}, {"prefetch", "later"}}); }), "known: pre, post, none"));
  const Job both = with(with(flat_llama(), "fsdp1", "world=8"), "fsdp", "world=8");
  EXPECT_TRUE(names(error_of([&] { simulate(both); }), "fsdp with fsdp1"));
}

// Weights in bf16 and AdamW without fp32 copies: 2 + 4 bytes a parameter stay between steps, over the ranks.
TEST(Fsdp1, WhatStaysBetweenStepsIsSixBytesAParameterOverTheRanks) {
  const int64_t whole = simulate(flat_llama()).parameters;
  const Simulation s = simulate(with(flat_llama(Precision::bf16), "fsdp1", "world=8"));
  EXPECT_EQ(8 * s.parameters, whole);
  EXPECT_EQ(8 * alive_at_end(s.trace, Category::parameter), 2 * whole);
  EXPECT_EQ(8 * alive_at_end(s.trace, Category::optimizer_state), 4 * whole);
  for (Category c : {Category::unsharded_parameter, Category::unsharded_gradient, Category::gather_buffer, Category::reduce_buffer})
    EXPECT_EQ(alive_at_end(s.trace, c), 0);
}

TEST(Fsdp1, OffloadLeavesNothingOnTheDeviceBetweenSteps) {
  const Simulation s = simulate(with(flat_llama(), "fsdp1", "world=4,offload=true"));
  EXPECT_EQ(alive_at_end(s.trace, Category::parameter), 0);
  EXPECT_EQ(alive_at_end(s.trace, Category::optimizer_state), 0);
  EXPECT_EQ(s.host.optimizer.count, 16 * s.parameters);  // fp32 weights, gradients and Adam's two states
}

TEST(Fsdp1, FrozenAndTrainedParametersNeedOriginalParametersOrUnitsOfTheirOwn) {
  const Job lora = with(flat_llama(), "lora", {{"r", 8}, {"target_modules", {"q_proj", "v_proj"}}, {"dtype", "base"}});
  const std::string text = error_of([&] { simulate(with(lora, "fsdp1", "world=2,wrap_trained_layers=false")); });
  EXPECT_TRUE(names(text, "trained and frozen")) << text;
  EXPECT_TRUE(names(text, "original_parameters: true")) << text;
  const Simulation s = simulate(with(lora, "fsdp1", "world=2"));
  EXPECT_GT(s.parameters, s.trainable);
  EXPECT_EQ(alive_at_end(s.trace, Category::optimizer_state), 8 * s.trainable);  // of the adapters' shards alone
}

TEST(DeepSpeed, WrongValuesAreErrorsThatNameTheNearestValidOnes) {
  EXPECT_TRUE(names(error_of([] { parse_deepspeed({{"world", 8}, {"prefetch_bucket", 5e7}}); }), "is of stage 3, and the stage is 2"));
  EXPECT_TRUE(parse_deepspeed("world=8,stage=3").overlap_comm);
  EXPECT_FALSE(parse_deepspeed("world=8,stage=2").overlap_comm);
  EXPECT_EQ(parse_deepspeed(to_json(parse_deepspeed("world=8,stage=3,sub_group=1e8"))).sub_group, 100'000'000);
  EXPECT_TRUE(names(error_of([] { parse_deepspeed({{"world", 8}, {"stage", 4}}); }), "stage 4 is not known"));
  EXPECT_TRUE(names(error_of([] { parse_deepspeed({{"world", 8}, {"reduce_bucket", 0}}); }), "500000000"));
  EXPECT_EQ(parse_deepspeed("world=8,reduce_bucket=5e7").reduce_bucket, 50'000'000);
}

TEST(DeepSpeed, WhatItCannotTrainIsAnErrorThatSaysWhy) {
  const Job zero = with(flat_llama(), "zero", "world=2");
  EXPECT_TRUE(names(error_of([&] { simulate(with(zero, "precision", "amp-fp16")); }), "weights in fp16"));
  EXPECT_TRUE(names(error_of([&] { simulate(with(zero, "frozen", {"model", "lm_head"})); }), "no parameter requires a gradient"));
  const Job three = with(flat_llama(), "zero", "world=2,stage=3");
  EXPECT_TRUE(names(error_of([&] { simulate(with(three, "precision", "amp")); }), "precision bf16"));
}

// ZeRO paper, table 1: 2 bytes of weights on every rank, and 4 + 4 + 4 of fp32 weights and Adam's states over the ranks.
TEST(DeepSpeed, WhatStaysBetweenStepsIsTwoBytesAParameterAndTwelveOverTheRanks) {
  const int64_t whole = simulate(flat_llama()).parameters;
  for (const char* settings : {"world=8,stage=1,reduce_bucket=1e5", "world=8,stage=2,reduce_bucket=1e5"}) {
    const Simulation s = simulate(with(flat_llama(Precision::bf16), "zero", settings));
    EXPECT_EQ(8 * alive_at_end(s.trace, Category::parameter), (8 * 2 + 4) * whole) << settings;
    EXPECT_EQ(8 * alive_at_end(s.trace, Category::optimizer_state), 8 * whole) << settings;
    EXPECT_EQ(alive_at_end(s.trace, Category::reduce_buffer), 0) << settings;
  }
}

// The same table: with stage 3 all of it is over the ranks, and this rank's gradients stay. Every size here is a multiple of 8.
TEST(DeepSpeed, StageThreeHasSixteenBytesAParameterOverTheRanks) {
  const int64_t whole = simulate(flat_llama()).parameters;
  const Simulation s = simulate(with(flat_llama(Precision::bf16), "zero", "world=8,stage=3,reduce_bucket=1e5,persistence_threshold=0"));
  EXPECT_EQ(8 * s.parameters, whole);
  EXPECT_EQ(8 * (alive_at_end(s.trace, Category::parameter) - 1), (2 + 4) * whole);  // and a flag
  EXPECT_EQ(8 * alive_at_end(s.trace, Category::optimizer_state), 8 * whole);
  EXPECT_EQ(8 * alive_at_end(s.trace, Category::gradient), 2 * whole);
  EXPECT_EQ(alive_at_end(s.trace, Category::unsharded_parameter), 0);
  EXPECT_EQ(alive_at_end(s.trace, Category::reduce_buffer), 200'000);
}

TEST(DeepSpeed, WhatStageThreeOffloadsIsOnTheHost) {
  const char* settings = "world=8,stage=3,reduce_bucket=1e5,persistence_threshold=0,offload_param=true,offload_optimizer=true";
  const Simulation s = simulate(with(flat_llama(Precision::bf16), "zero", settings));
  EXPECT_EQ(alive_at_end(s.trace, Category::parameter), 0);
  EXPECT_EQ(alive_at_end(s.trace, Category::optimizer_state), 0);
  EXPECT_EQ(s.host.optimizer.count, (2 + 2 + 8 + 8) * s.parameters);  // weights and gradients in bf16; in fp32, and Adam's states
}

TEST(DeepSpeed, TheBucketHasItsSizeWhateverTheModels) {
  const auto peak = [](const char* settings) {
    return ideal_timeline(simulate(with(flat_llama(Precision::bf16), "zero", settings)).trace).peak().bytes;
  };
  EXPECT_GE(peak("world=8,reduce_bucket=5e8"), 1'000'000'000);
  EXPECT_GE(peak("world=8,reduce_bucket=5e8,overlap_comm=true"), 2'000'000'000);
}

}  // namespace
}  // namespace plimsoll::flat_sharding_test
