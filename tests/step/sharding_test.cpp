// fully_shard (FSDP2, HSDP) and tensor parallelism on one rank: settings and their errors, what adds up over ranks, and what each setting
// costs. Equality with recorded runs is in truth_test.cpp (tests/truth/fsdp2.jsonl, tests/truth/tp.jsonl).
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "allocator/timeline.h"
#include "job/parallel.h"
#include "job/settings.h"
#include "model/resolve.h"
#include "simulate.h"
#include "step/train.h"
#include "support.h"

namespace plimsoll::sharding_test {
namespace {

using Json = nlohmann::json;

Job small_job(const std::string& model, const Json& config) {
  Job job;
  job.model = model;
  job.batch = 1;
  job.seq = 32;
  job.precision = Precision::fp32;
  job.origin["seq"] = "test";
  resolve_model(job);
  apply_setting(job, "config", config, "test");
  return job;
}

Job small_gpt2() { return small_job("gpt2", {{"n_layer", 3}, {"n_embd", 60}, {"n_head", 4}, {"vocab_size", 501}}); }

Job small_llama() {
  return small_job("llama", {{"num_hidden_layers", 3},
                             {"hidden_size", 64},
                             {"intermediate_size", 96},
                             {"num_attention_heads", 8},
                             {"num_key_value_heads", 4},
                             {"vocab_size", 512}});
}

Job sharded(Job job, Json fsdp) {
  apply_setting(job, "fsdp", fsdp, "test");
  return job;
}

Job in_tensors(Job job, Json parallel) {
  apply_setting(job, "tensor_parallel", parallel, "test");
  return job;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

int64_t peak_of(const Job& job) { return ideal_timeline(simulate(job).trace).peak().bytes; }

TEST(Fsdp, AFlagAndAMappingGiveTheSameSettings) {
  const Job file = sharded(small_gpt2(), {{"world", 8}, {"param_dtype", "bf16"}, {"reshard", 4}});
  const Job flag = sharded(small_gpt2(), "world=8,param_dtype=bf16,reshard=4");
  EXPECT_EQ(to_json(*file.parallel.fsdp).dump(), to_json(*flag.parallel.fsdp).dump());
  EXPECT_EQ(flag.parallel.fsdp->reshard_to, 4);
  EXPECT_EQ(parse_fsdp(to_json(*flag.parallel.fsdp)).reshard_to, 4);
}

TEST(Fsdp, WrongValuesAreErrorsThatNameTheNearestValidOnes) {
  EXPECT_TRUE(has(error_of([] { parse_fsdp({{"rank", 1}}); }), "world is not given"));
  EXPECT_TRUE(has(error_of([] { parse_fsdp({{"world", 4}, {"rank", 4}}); }), "rank 4 is not one of 0 to 3"));
  EXPECT_TRUE(has(error_of([] {
                    parse_fsdp({{"world", 8}, {"replicas", 3}});
                  }),
                  "replicas 3 does not divide world 8 | take one of 1, 2, 4, 8"));
  EXPECT_TRUE(has(error_of([] { parse_fsdp({{"world", 8}, {"replicas", 2}, {"rank", 4}}); }), "rank 4 is not one of 0 to 3"));
  EXPECT_TRUE(has(error_of([] { parse_fsdp({{"world", 8}, {"reshard", 3}}); }), "reshard 3 does not divide the 8 shards"));
  EXPECT_TRUE(has(error_of([] { parse_fsdp({{"world", 8}, {"param_dtype", "int4"}}); }), "param_dtype 'int4'"));
  Job both = sharded(small_gpt2(), {{"world", 8}});
  apply_setting(both, "ddp", {{"world", 8}}, "test");
  EXPECT_TRUE(has(error_of([&] { simulate(both); }), "ddp with fsdp"));
}

TEST(Fsdp, ShardsOfAllRanksAreTheModel) {
  const int64_t whole = simulate(small_gpt2()).parameters;
  int64_t sum = 0, largest = 0, first = 0;
  for (int64_t rank = 0; rank < 7; ++rank) {
    const int64_t own = simulate(sharded(small_gpt2(), {{"world", 7}, {"rank", rank}})).parameters;
    sum += own;
    largest = std::max(largest, own);
    if (rank == 0) first = own;
  }
  EXPECT_EQ(sum, whole);
  EXPECT_EQ(first, largest);
}

// fp32 weights and AdamW: 4 + 8 bytes a parameter stay between steps, over the ranks. Sizes here divide evenly.
TEST(Fsdp, WhatStaysBetweenStepsIsTwelveBytesAParameterOverTheRanks) {
  const Simulation s = simulate(sharded(small_llama(), {{"world", 8}, {"param_dtype", "bf16"}, {"reduce_dtype", "fp32"}}));
  const int64_t whole = simulate(small_llama()).parameters;
  EXPECT_EQ(8 * s.parameters, whole);
  EXPECT_EQ(8 * alive_at_end(s.trace, Category::parameter), 4 * whole);
  EXPECT_EQ(8 * alive_at_end(s.trace, Category::optimizer_state), 8 * whole);
  for (Category c : {Category::unsharded_parameter, Category::unsharded_gradient, Category::gather_buffer, Category::reduce_buffer})
    EXPECT_EQ(alive_at_end(s.trace, c), 0);
}

TEST(Fsdp, KeepingWeightsWholeOrGradientsWholeCostsMemory) {
  const Job usual = sharded(small_llama(), {{"world", 8}});
  EXPECT_LT(peak_of(usual), peak_of(small_llama()));
  EXPECT_LT(peak_of(usual), peak_of(sharded(small_llama(), {{"world", 8}, {"reshard", false}})));
  EXPECT_LT(peak_of(usual), peak_of(sharded(small_llama(), {{"world", 8}, {"replicas", 4}})));
  Job accumulating = usual, waiting = sharded(small_llama(), {{"world", 8}, {"no_sync", true}});
  accumulating.accumulation = waiting.accumulation = 2;
  EXPECT_LT(peak_of(accumulating), peak_of(waiting));
}

TEST(Fsdp, EveryListOfBlocksIsShardedInAModelThatHasTwo) {
  Job job = small_job("t5", {{"num_layers", 2}, {"d_model", 64}, {"d_kv", 16}, {"num_heads", 4}, {"d_ff", 96}, {"vocab_size", 512}});
  const Simulation s = simulate(sharded(job, {{"world", 4}}));
  std::set<std::string> gathering;
  for (const StorageRecord& r : s.trace.storages)
    if (r.born_as == Category::gather_buffer) gathering.insert(s.trace.scope_path(r.scope));
  EXPECT_TRUE(gathering.contains("encoder.block.1"));
  EXPECT_TRUE(gathering.contains("decoder.block.1"));
}

TEST(Fsdp, EvaluationAndCheckpointsRunOnShardsToo) {
  Job job = sharded(small_gpt2(), {{"world", 4}, {"param_dtype", "bf16"}});
  job.checkpointing.on = true;
  job.eval_batch = 2;
  job.clip = 1.0;
  EXPECT_GT(peak_of(job), 0);
}

TEST(Fsdp, ATiedEmbeddingCannotHaveAGroupOfItsOwn) {
  EXPECT_TRUE(has(error_of([] {
                    simulate(sharded(small_gpt2(), {{"world", 2}, {"wrap_embedding", true}}));
                  }),
                  "is shared with a module of another group"));
}

// Pure bf16: weights, gradients and two states, and what the update makes of one of them, 2 bytes each. Every size is a multiple of 8.
TEST(Fsdp, PureBf16HasTenBytesAParameterOverTheRanksInTheUpdate) {
  Job job = small_llama();
  job.precision = Precision::bf16;
  job.drop_after = true;
  const int64_t whole = simulate(job).parameters;
  const Simulation s = simulate(sharded(job, "world=8"));
  int64_t beside = 0;
  for (const LiveStorage& l : alive_at(s.trace, static_cast<int64_t>(s.trace.events.size()) - 1))
    if (l.category == Category::input || l.category == Category::buffer || l.category == Category::workspace)
      beside += s.trace.storages[l.id].bytes;
  EXPECT_EQ(8 * (ideal_timeline(s.trace).steps.back().by_phase[static_cast<size_t>(Phase::optimizer)] - beside), 10 * whole);
}

TEST(TensorParallel, LayersAreSharedOutAndNormsAreNot) {
  const Simulation whole = simulate(small_llama()), part = simulate(in_tensors(small_llama(), {{"world", 4}}));
  const int64_t norms = 7 * 64;
  EXPECT_EQ(part.parameters, (whole.parameters - norms) / 4 + norms);
  EXPECT_LT(peak_of(in_tensors(small_llama(), {{"world", 4}, {"sequence", true}})), peak_of(in_tensors(small_llama(), {{"world", 4}})));
}

TEST(TensorParallel, WhatDoesNotDivideIsAnErrorThatNamesTheNearestValidOnes) {
  EXPECT_TRUE(has(error_of([] {
                    simulate(in_tensors(small_llama(), {{"world", 3}}));
                  }),
                  "world 3 does not divide num_key_value_heads 4 | the nearest that do: 2 and 4"));
  EXPECT_TRUE(has(error_of([] {
                    simulate(in_tensors(small_llama(), {{"world", 8}}));
                  }),
                  "world 8 does not divide num_key_value_heads 4 | the nearest that do: 4"));
  Job job = in_tensors(small_llama(), {{"world", 4}, {"sequence", true}});
  job.seq = 30;
  EXPECT_TRUE(has(error_of([&] { simulate(job); }), "sequence of 30 tokens: world 4 does not divide them | the nearest: 28 and 32 tokens"));
  EXPECT_TRUE(has(error_of([] { simulate(in_tensors(small_gpt2(), {{"world", 2}})); }), "there is no plan for it"));
  Job clipped = in_tensors(small_llama(), {{"world", 2}});
  clipped.clip = 1.0;
  EXPECT_TRUE(has(error_of([&] { simulate(clipped); }), "refuses a mix"));
}

}  // namespace
}  // namespace plimsoll::sharding_test
