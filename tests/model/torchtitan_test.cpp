// torchtitan's layouts and the meshes of PyTorch: settings and their errors, how a pipeline is split, what adds up over ranks, and the
// pools of streams. Equality with recorded runs is in truth_test.cpp (tests/truth/mesh.jsonl).
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <numeric>

#include "allocator/cuda_timeline.h"
#include "allocator/timeline.h"
#include "job/distribution.h"
#include "job/settings.h"
#include "model/decoder/torchtitan.h"
#include "simulate.h"
#include "step/pipeline_schedule.h"
#include "step/train.h"

namespace plimsoll::torchtitan_test {
namespace {

using Json = nlohmann::json;

Job plain(int64_t layers = 6, int64_t width = 64) {
  Job job;
  job.family = "llama";
  job.config = Config("test", {{"num_hidden_layers", layers},
                               {"hidden_size", width},
                               {"intermediate_size", width * 3 / 2},
                               {"num_attention_heads", 8},
                               {"num_key_value_heads", 4},
                               {"vocab_size", 512}});
  job.precision = Precision::fp32;
  job.batch = 8;
  job.seq = 64;
  return job;
}

Job titan(const Json& layout, int64_t layers = 6) {
  Job job = plain(layers);
  apply_setting(job, "torchtitan", layout, "test");
  return job;
}

int64_t peak_of(const Job& job) { return ideal_timeline(simulate(job).trace).peak().bytes; }

std::string refusal(const Json& layout, int64_t layers = 6) {
  try {
    simulate(titan(layout, layers));
  } catch (const Error& e) {
    return std::string(e.what()) + " | " + e.hint();
  }
  return "";
}

TEST(Torchtitan, WhatCannotBeNamesTheNearestThatCan) {
  const std::pair<Json, const char*> cases[]{
      {{{"world", 60}, {"tensor", 8}}, "world 60 is no multiple of tensor 8 x pipeline 1 x context 1 | the nearest: 56 and 64"},
      {{{"world", 16}, {"pipeline", 4}, {"micro_batches", 3}},
       "a batch of 8 is no multiple of 3 micro_batches | the nearest batches: 6 and 9"},
      {{{"world", 16}, {"pipeline", 8}}, "6 layers over 8 stages leave stage 0 without one | at most 4 stages"},
      {{{"world", 16}, {"pipeline", 4}, {"micro_batches", 2}}, "2 micro-batches are less than 4 stages"},
      {{{"world", 12}, {"context", 3}}, "64 tokens are no multiple of 6: tensor 1 x 2 x context 3 | the nearest: 60 and 66"},
      {{{"world", 6}, {"tensor", 3}}, "4 heads of keys and values cannot be split over tensor 3 | tensor can be one of 1, 2, 4"},
      {{{"world", 16}, {"tensor", 8}}, "4 heads of keys and values cannot be split over tensor 8"},
      {{{"world", 8}, {"tensor", 8}}, "fully_shard nothing to shard | world 16 or more"},
      {{{"world", 16}, {"pipeline", 2}, {"layers", {3, 4}}}, "layers add up to 7, and the model has 6"},
      {{{"world", 16}, {"pipeline", 2}, {"layers", {6, 0}}}, "0 is no number of layers"},
      {{{"world", 16}, {"virtual_stages", 2}}, "virtual_stages 2 without a pipeline"},
      {{{"world", 16}, {"pipeline", 2}, {"schedule", "zb"}}, "schedule 'zb' is not known | known: gpipe, 1f1b, interleaved"},
      {{{"world", 16}, {"version", "2023-01"}}, "version '2023-01' is no month since 2024"},
      {{{"world", 16}, {"context", 2}, {"replicas", 16}}, "8 data ranks are no multiple of replicas 16"},
      {{{"world", 16}, {"expert", 8}}, "expert 8: experts of its models are not simulated | Megatron-LM's layout has expert parallelism"},
      {{{"world", 16}, {"stage", 3}}, "stage 3 is not one of 0 to 0"}};
  for (const auto& [layout, expected] : cases) {
    std::string said;
    try {
      said = refusal(layout);
    } catch (const std::exception& e) {
      said = e.what();
    }
    EXPECT_NE(said.find(expected), std::string::npos) << layout.dump() << ": " << said;
  }
}

TEST(Torchtitan, EmbeddingAndHeadCountAsALayerEach) {
  EXPECT_EQ(torchtitan_split(126, 8), (std::vector<int64_t>{15, 16, 16, 16, 16, 16, 16, 15}));
  EXPECT_EQ(torchtitan_split(6, 4), (std::vector<int64_t>{1, 2, 2, 1}));
  EXPECT_EQ(torchtitan_split(32, 4), (std::vector<int64_t>{8, 9, 8, 7}));
  EXPECT_EQ(torchtitan_split(32, 4, false), (std::vector<int64_t>{8, 8, 8, 8})) << "before 2025-04";
  EXPECT_EQ(torchtitan_split(11, 4, false), (std::vector<int64_t>{2, 3, 3, 3}));
  EXPECT_EQ(torchtitan_split(126, 8, false), (std::vector<int64_t>{15, 16, 16, 16, 16, 16, 16, 15}));
  for (const int64_t parts : {1, 2, 3, 5, 7}) {
    const std::vector<int64_t> split = torchtitan_split(32, parts);
    EXPECT_EQ(std::accumulate(split.begin(), split.end(), int64_t{0}), 32);
  }
}

TEST(Torchtitan, ShardsOfAllStagesAreTheWholeModel) {
  const int64_t whole = 2 * 512 * 64 + 64 + 6 * (64 * 64 * 2 + 64 * 32 * 2 + 3 * 64 * 96 + 2 * 64);
  int64_t all = 0;
  for (int64_t stage = 0; stage < 3; ++stage) all += 2 * simulate(titan({{"world", 6}, {"pipeline", 3}, {"stage", stage}})).parameters;
  EXPECT_EQ(all, whole);
  EXPECT_EQ(2 * simulate(titan({{"world", 2}})).parameters, whole);
}

TEST(Torchtitan, EveryStageIsExecutedAndTheLargestIsTheAnswer) {
  const auto rounded = [](const Job& job) { return ideal_timeline(simulate(job).trace).peak().rounded; };
  int64_t most = 0;
  for (int64_t stage = 0; stage < 4; ++stage) most = std::max(most, rounded(titan({{"world", 8}, {"pipeline", 4}, {"stage", stage}})));
  EXPECT_EQ(rounded(titan({{"world", 8}, {"pipeline", 4}})), most);
  EXPECT_EQ(execute(titan({{"world", 8}, {"pipeline", 4}}))->ranks.size(), 4u);
}

TEST(Torchtitan, WhatEachSettingDoesToThePeak) {
  const int64_t base = peak_of(titan({{"world", 8}}));
  EXPECT_LT(peak_of(titan({{"world", 16}})), base);
  EXPECT_LT(peak_of(titan({{"world", 16}, {"tensor", 2}})), base);
  EXPECT_LT(peak_of(titan({{"world", 16}, {"context", 2}})), base);
  EXPECT_LT(peak_of(titan({{"world", 8}, {"loss_chunks", 8}})), base);
  EXPECT_GT(peak_of(titan({{"world", 8}, {"version", "2024-03"}})), peak_of(titan({{"world", 8}, {"version", "2024-08"}})));
  Job full = titan({{"world", 8}}), selective = full;
  apply_setting(full, "checkpointing", true, "test");
  apply_setting(selective, "checkpointing", {{"save", "torchtitan"}}, "test");
  EXPECT_LT(peak_of(full), peak_of(selective));
  EXPECT_LT(peak_of(selective), base);
}

// What is left out of a long schedule changes nothing but time: logits that a stage keeps count all the same.
TEST(Torchtitan, TheLastStageKeptTheLogitsOfEveryMicroBatch) {
  const auto peak = [](int64_t batch, const char* version) {
    Job job = titan({{"world", 4}, {"pipeline", 2}, {"stage", 1}, {"version", version}});
    job.batch = batch;
    return peak_of(job);
  };
  const int64_t hidden = 64 * 64 * 2, logits = 64 * 512 * 2, loss = 4, ids = 2 * 64 * 8;
  EXPECT_EQ(peak(16, "2025-12") - peak(8, "2025-12"), 8 * (hidden + loss + ids)) << "buffers that it receives into";
  EXPECT_EQ(peak(16, "2025-10") - peak(8, "2025-10"), 8 * (hidden + loss + ids + logits));
}

TEST(Torchtitan, GPipeHasAllMicroBatchesInFlightAnd1F1BAsManyAsThereAreStages) {
  const auto peak = [](const char* schedule) {
    return peak_of(titan({{"world", 4}, {"pipeline", 2}, {"schedule", schedule}, {"stage", 0}}));
  };
  EXPECT_GT(peak("gpipe"), peak("1f1b"));
  int64_t now = 0, most = 0;
  for (const PipelineCall& c : gpipe_schedule(8)) most = std::max(most, now += c.forward ? 1 : -1);
  EXPECT_EQ(most, 8);
  EXPECT_EQ(now, 0);
}

// Shards of the first batch's gradients are there while the second goes through the pipeline.
TEST(Torchtitan, APipelineThatAccumulatesKeepsTheShardsOfItsGradients) {
  const auto run = [](int64_t accumulation) {
    Job job = titan({{"world", 4}, {"pipeline", 2}, {"stage", 1}});
    job.accumulation = accumulation;
    return simulate(job);
  };
  const Simulation one = run(1), two = run(2);
  EXPECT_EQ(ideal_timeline(two.trace).peak().bytes - ideal_timeline(one.trace).peak().bytes, 4 * one.parameters);
  EXPECT_EQ(ideal_timeline(run(8).trace).peak().bytes, ideal_timeline(two.trace).peak().bytes);
}

// So that a plan need not execute a first step. (Without a pipeline, forward knows by the second step the workspace of backward's
// products.)
TEST(Torchtitan, APipelineWithStatesFromTheStartIsInItsSteadyState) {
  for (const Json& layout : {Json{{"world", 8}, {"pipeline", 2}, {"stage", 0}}, Json{{"world", 8}, {"pipeline", 2}, {"stage", 1}},
                             Json{{"world", 8}, {"pipeline", 2}, {"tensor", 2}, {"stage", 1}},
                             Json{{"world", 8}, {"pipeline", 2}, {"virtual_stages", 2}, {"stage", 0}}}) {
    Job cold = titan(layout), warm = cold;
    warm.warm_optimizer = true;
    warm.steps = 1;
    EXPECT_EQ(peak_of(warm), peak_of(cold)) << layout.dump();
  }
}

TEST(Mesh, ShardsAreDividedByBothDimensions) {
  Job job = plain();
  const int64_t whole = simulate(job).parameters;
  apply_setting(job, "fsdp", {{"world", 4}}, "test");
  apply_setting(job, "tensor_parallel", {{"world", 2}, {"sequence", true}}, "test");
  EXPECT_EQ(world_size(job), 8);
  EXPECT_EQ(replica_count(job), 4);
  const int64_t norms = 13 * 64;
  EXPECT_EQ(simulate(job).parameters, (whole - norms) / 8 + norms / 4);
}

// Weights, gradients and Adam's two states in bf16, and one set of square roots: 10 bytes a parameter over n ranks.
TEST(Mesh, PureBf16UnderFsdpIsTenBytesAParameterOverTheRanksInTheOptimizer) {
  for (const int64_t ranks : {4, 8}) {
    Job job = plain(24, 4096);  // beside which workspaces are small
    job.precision = Precision::bf16;
    job.batch = 1;
    job.seq = 8;
    job.drop_output = job.drop_after = true;
    apply_setting(job, "fsdp", {{"world", ranks}}, "test");
    const Simulation s = simulate(job);
    const Timeline t = ideal_timeline(s.trace);
    const auto optimizer = static_cast<double>(t.steps[1].by_phase[static_cast<size_t>(Phase::optimizer)]);
    EXPECT_NEAR(optimizer / static_cast<double>(s.parameters), 10.0, 0.1);  // parameters of this rank
  }
}

TEST(Mesh, ReservedIsAtLeastTheSumOfThePools) {
  Job job = plain();
  EXPECT_EQ(ideal_timeline(simulate(job).trace).peak().pool_sum(), peak_of(job));
  apply_setting(job, "fsdp", {{"world", 4}, {"param_dtype", "bf16"}, {"reduce_dtype", "fp32"}}, "test");
  const Trace trace = simulate(job).trace;
  const StepPeak& peak = ideal_timeline(trace).peak();
  EXPECT_GT(peak.by_stream[static_cast<size_t>(Stream::all_gather)], 0);
  EXPECT_GT(peak.by_stream[static_cast<size_t>(Stream::reduce_scatter)], 0);
  EXPECT_GT(peak.pool_sum(), peak.bytes);
  EXPECT_GE(cuda_timeline(trace).reserved_peak, peak.pool_sum());
}

}  // namespace
}  // namespace plimsoll::torchtitan_test
