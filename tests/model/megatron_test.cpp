// Megatron-LM's layouts: the schedule of a pipeline, bytes a rank, and settings that cannot be.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "allocator/timeline.h"
#include "hardware/lookup.h"
#include "job/settings.h"
#include "model/decoder/megatron.h"
#include "simulate.h"
#include "step/pipeline_schedule.h"
#include "step/train.h"

namespace plimsoll::megatron_test {
namespace {

using Json = nlohmann::json;

TEST(PipelineSchedule, EveryMicroBatchGoesForwardThenBackwardOnce) {
  for (const int64_t stages : {1, 2, 4})
    for (const int64_t chunks : {1, 2, 3})
      for (const int64_t micro : {4, 8, 12})
        for (int64_t stage = 0; stage < stages; ++stage) {
          std::set<std::pair<int64_t, int64_t>> flying, done;
          for (const PipelineCall& c : pipeline_schedule(stages, stage, chunks, micro)) {
            const std::pair<int64_t, int64_t> key{c.micro_batch, c.chunk};
            if (c.forward) {
              EXPECT_TRUE(flying.insert(key).second);
            } else {
              EXPECT_EQ(flying.erase(key), 1u);
              EXPECT_TRUE(done.insert(key).second);
            }
          }
          EXPECT_TRUE(flying.empty());
          EXPECT_EQ(done.size(), static_cast<size_t>(micro * chunks));
        }
}

TEST(PipelineSchedule, EarlierStagesHaveMoreInFlight) {
  for (int64_t stage = 0; stage < 4; ++stage) {
    int64_t now = 0, most = 0;
    for (const PipelineCall& c : pipeline_schedule(4, stage, 1, 16)) most = std::max(most, now += c.forward ? 1 : -1);
    EXPECT_EQ(most, 4 - stage);
  }
}

Job small(const std::string& layout) {
  Job job;
  job.family = "megatron";
  job.config = Config("test", {{"num_layers", 8},
                               {"hidden_size", 512},
                               {"num_attention_heads", 8},
                               {"ffn_hidden_size", 2048},
                               {"vocab_size", 1024},
                               {"max_position_embeddings", 256}});
  job.precision = Precision::bf16;
  job.batch = 2;
  job.seq = 256;
  job.accumulation = 4;
  apply_setting(job, "megatron", layout, "test");
  return job;
}

// What a preset does not say is as its class has it, in both.
TEST(Megatron, FamiliesAreThoseOfTransformers) {
  const MegatronSettings one = parse_megatron("world=1");
  const MegatronConfig mixtral("mixtral", Config("test", Json::object()), one);
  EXPECT_EQ(mixtral.experts, 8);
  EXPECT_EQ(mixtral.groups, 8);
  EXPECT_EQ(mixtral.ffn, 14336);
  const MegatronConfig deepseek("deepseek_v3", Config("test", Json::object()), one);
  EXPECT_EQ(deepseek.layers, 61);
  EXPECT_EQ(deepseek.experts, 256);
  EXPECT_EQ(deepseek.q_rank, 1536);
  EXPECT_EQ(deepseek.shared_ffn, 2048);
  EXPECT_EQ(std::count(deepseek.is_moe.begin(), deepseek.is_moe.end(), false), 3);
  const MegatronConfig lite("deepseek_v2", Config("test", {{"q_lora_rank", nullptr}}), one);
  EXPECT_EQ(lite.q_rank, 0);
  try {
    MegatronConfig("mixtral", Config("test", Json::object()), parse_megatron("world=6,expert=3"));
    ADD_FAILURE() << "8 experts over 3 ranks";
  } catch (const Error& e) {
    EXPECT_EQ(e.hint(), "expert can be one of 1, 2, 4, 8; or take 6 experts");
  }
}

TEST(Megatron, TokensOfABusyRankAreItsOwn) {
  const auto peak = [](double imbalance) {
    Job job = small("world=4,expert=4");
    Json config = job.config.values();
    config["num_moe_experts"] = 8;
    config["moe_load_imbalance"] = imbalance;
    job.config = Config("test", config);
    return ideal_timeline(simulate(job).trace).peak().bytes;
  };
  EXPECT_LT(peak(1), peak(1.5));
  EXPECT_LT(peak(1.5), peak(4));
  EXPECT_THROW(peak(4.5), Error) << "more than all tokens";
  EXPECT_THROW(peak(0.5), Error);
}

int64_t resting(const Job& job, int64_t* parameters) {
  const Simulation s = simulate(job);
  int64_t now = 0;
  for (const LiveStorage& alive : alive_at(s.trace, static_cast<int64_t>(s.trace.events.size()) - 1))
    if (alive.category == Category::parameter || alive.category == Category::gradient || alive.category == Category::optimizer_state)
      now += s.trace.storages[alive.id].bytes;
  *parameters = s.parameters;
  return now;
}

// Weights 2, main gradients 4, and 12 bytes of fp32 weights and Adam's states, which the distributed optimizer shards.
TEST(Megatron, SixBytesAParameterAndTwelveOverTheReplicas) {
  int64_t parameters = 0;
  for (const char* layout : {"world=1", "world=8,tensor=2"}) {
    const int64_t bytes = resting(small(std::string(layout) + ",distributed_optimizer=false,fused_gradients=false"), &parameters);
    EXPECT_EQ(bytes, 18 * parameters) << layout;
  }
  for (const int64_t data : {2, 4, 8}) {
    const int64_t bytes = resting(small("fused_gradients=false,world=" + std::to_string(data)), &parameters);
    const double expected = static_cast<double>(parameters) * (6 + 12.0 / static_cast<double>(data));
    EXPECT_GE(static_cast<double>(bytes), expected);
    EXPECT_LT(static_cast<double>(bytes), expected * 1.001);  // parameters begin at multiples of 64
  }
}

TEST(Megatron, StagesShareLayersAndTheLargestIsTheAnswer) {
  const std::vector<RankRun> stages = execute(small("world=4,pipeline=4"))->ranks;
  ASSERT_EQ(stages.size(), 4u);
  EXPECT_GT(stages[0].parameters, stages[1].parameters);  // the embedding
  EXPECT_EQ(stages[1].parameters, stages[2].parameters);
  EXPECT_GT(stages[1].cuda.allocated_peak, stages[2].cuda.allocated_peak);  // one micro-batch more in flight
  int64_t whole = 0;
  for (const RankRun& r : stages) whole += r.parameters;
  // The head has a copy of the tied embedding when it is on another stage.
  EXPECT_EQ(whole, simulate(small("world=1")).parameters + 1024 * 512);
  EXPECT_LT(execute(small("world=4,pipeline=4,layers=1+3+3+1"))->ranks[0].parameters, stages[0].parameters);
}

TEST(Megatron, SequenceParallelAndRecomputationSave) {
  const auto peak = [](const Job& job) { return ideal_timeline(simulate(job).trace).peak().bytes; };
  const int64_t plain = peak(small("world=4,tensor=4")), sequence = peak(small("world=4,tensor=4,sequence=true"));
  EXPECT_LT(sequence, plain);
  Job recomputed = small("world=4,tensor=4,sequence=true");
  recomputed.checkpointing.on = recomputed.checkpointing.reentrant = true;
  EXPECT_LT(peak(recomputed), sequence);
}

std::string error_of(const std::string& layout) {
  try {
    simulate(small(layout));
  } catch (const Error& e) {
    return std::string(e.what()) + " | " + e.hint();
  }
  return "";
}

TEST(Megatron, ImpossibleLayoutsNameThePossible) {
  const auto holds = [](const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; };
  EXPECT_TRUE(holds(error_of("world=3,tensor=3"), "8 attention heads cannot be split over tensor 3 | tensor can be one of 1, 2, 4, 8"));
  EXPECT_TRUE(holds(error_of("world=6,tensor=4"), "world 6 is no multiple of tensor 4 x pipeline 1 x context 1 | the nearest: 4 and 8"));
  EXPECT_TRUE(holds(error_of("world=3,pipeline=3"), "8 layers cannot be split over 3 stages | say how many each has"));
  EXPECT_TRUE(holds(error_of("world=16,pipeline=16"), "a stage would have no layer: take a pipeline of at most 8"));
  EXPECT_TRUE(holds(error_of("world=4,pipeline=4,layers=2+2+2"), "layers has 3 numbers"));
  EXPECT_TRUE(holds(error_of("world=4,pipeline=4,layers=2+2+2+3"), "the stages have 9 layers, the model has 8"));
  EXPECT_TRUE(holds(error_of("world=2,expert=2"), "has no experts"));
  EXPECT_TRUE(holds(error_of("world=4,pipeline=4,stage=4"), "stage 4 is not one of 0 to 3"));
  EXPECT_TRUE(holds(error_of("world=3,context=3"), "256 tokens cannot be split over 3 ranks"));
  EXPECT_TRUE(holds(error_of("attention=eager"), "known: fused, flash, unfused"));
  EXPECT_TRUE(holds(error_of("tensor=0"), "tensor 0 is not between 1 and"));
}

}  // namespace
}  // namespace plimsoll::megatron_test
