// The few-shot diffusion model: what its parts weigh, and as a JAX program what each layer keeps for the derivative, against sums that
// can be formed from the shapes.
#include <gtest/gtest.h>

#include <fmt/format.h>
#include <map>
#include <nlohmann/json.hpp>

#include "allocator/timeline.h"
#include "job/jax_settings.h"
#include "job/settings.h"
#include "model/registry.h"
#include "model/resolve.h"
#include "program/program.h"
#include "simulate.h"
#include "xla/compile.h"

namespace plimsoll::fsdm_test {
namespace {

std::map<std::string, int64_t> parameters_by_part(const char* config) {
  Tape tape;
  Build build(tape);
  const auto model = find_model("fsdm")->make(build, Config("fsdm", nlohmann::json::parse(config)));
  std::map<std::string, int64_t> out;
  for (const Parameter* p : model->parameters()) {
    const std::string path = tape.trace.scope_path(tape.trace.storages[p->value.storage().id].scope);
    out[path.substr(0, path.find('.'))] += p->value.numel();
  }
  return out;
}

TEST(Fsdm, PartsHaveTheirParameters) {
  EXPECT_EQ(parameters_by_part("{}"), (std::map<std::string, int64_t>{{"dit", 27965352}, {"encoder", 5733014}, {"time_embed", 82432}}));
  // Only the first layer of the encoder knows how many images a set has.
  EXPECT_EQ(parameters_by_part(R"({"sample_size":4})").at("encoder"), 5733014 - 2 * 12 * (256 + 2));
}

TEST(Fsdm, ABlockWithoutCrossAttentionHasNoneOfItsParameters) {
  EXPECT_EQ(parameters_by_part(R"({"cross_attn_layers":"2,3,4,5"})").at("dit"), 27965352 - 2 * (120276 + 877968));
}

TEST(Fsdm, FlagsOfTheScriptsAndArgumentsOfTheModuleAreTheSame) {
  EXPECT_EQ(
      parameters_by_part(R"({"ns":3,"hidden":96,"heads":4,"mlp":2.0,"edepth":1,"eheads":2,"edh":16,"emlp":2.0,"img":16,"patch":4})"),
      parameters_by_part(
          R"({"sample_size":3,"hidden_size":96,"num_heads":4,"mlp_ratio":2.0,"encoder_depth":1,"encoder_heads":2,"encoder_dim_head":16,
                    "encoder_mlp_ratio":2.0,"image_size":16,"patch_size":4})"));
}

Job small_job(const nlohmann::json& changes, int64_t batch) {
  Job job;
  job.model = "fsdm";
  nlohmann::json config{{"sample_size", 2}, {"depth", 1}, {"encoder_depth", 1}};
  for (const auto& item : changes.items()) config[item.key()] = item.value();
  job.config = Config("fsdm", config);
  job.precision = Precision::fp32;
  resolve_model(job);
  job.batch = batch;
  return job;
}

int64_t residuals(const nlohmann::json& config, int64_t batch) {
  Job job = small_job(config, batch);
  job.program.framework = Framework::jax;
  return compile(job, DeviceKind::gpu).residuals;
}

// 12 sets of 2 images: 24 images of 256 tokens.
TEST(Fsdm, ADiTBlockKeepsItsProbabilitiesAndActivations) {
  constexpr int64_t kImages = 24, kTokens = 256, kWidth = 468;
  const int64_t tokens = kImages * kTokens * kWidth * 4, probabilities = kImages * 9 * kTokens * kTokens * 4;
  const int64_t kept = residuals({{"depth", 2}}, 12) - residuals({{"depth", 1}}, 12);
  // 2 attentions, gelu's input and result 3 times as wide, 16 to 20 further arrays of the tokens' size
  EXPECT_GE(kept, 2 * probabilities + 6 * tokens + 16 * tokens);
  EXPECT_LE(kept, 2 * probabilities + 6 * tokens + 20 * tokens);
}

TEST(Fsdm, AnEncoderLayerKeepsItsScoresTwiceBecauseTheTemperatureIsLearned) {
  constexpr int64_t kSets = 4, kTokens = 258, kWidth = 256, kInner = 768, kRuns = 2;
  const int64_t scores = kSets * 12 * kTokens * kTokens * 4, tokens = kSets * kTokens * kWidth * 4, inner = kSets * kTokens * kInner * 4;
  const int64_t kept = residuals({{"encoder_depth", 2}}, kSets) - residuals({{"encoder_depth", 1}}, kSets);
  EXPECT_GE(kept, kRuns * (2 * scores + 4 * inner + 5 * tokens));
  EXPECT_LE(kept, kRuns * (2 * scores + 4 * inner + 8 * tokens));
}

TEST(Fsdm, RematKeepsOnlyWhatEntersTheBlocks) {
  constexpr int64_t kImages = 24;
  const int64_t kept = residuals({{"depth", 2}, {"use_remat", true}}, 12) - residuals({{"depth", 1}, {"use_remat", true}}, 12);
  EXPECT_LE(kept, 2 * kImages * 256 * 468 * 4);
}

TEST(Fsdm, APooledContextHasFewerKeysAndASkippedBlockNone) {
  EXPECT_LT(residuals({{"context_pool_size", 64}}, 4), residuals({}, 4));
  const nlohmann::json one{{"depth", 2}, {"cross_attn_layers", "1"}};
  EXPECT_LT(residuals(one, 4), residuals({{"depth", 2}}, 4));
}

// lax.stop_gradient on the positions: they are never moved, but have states and an average as every parameter.
TEST(Fsdm, EveryParameterHasItsStateAndAverageTwiceWithoutDonation) {
  Job job = small_job({}, 2);
  job.program.framework = Framework::jax;
  job.ema = true;
  const XlaMemory m = compile(job, DeviceKind::gpu);
  EXPECT_EQ(m.parameter_bytes, 4 * m.parameters);
  EXPECT_EQ(m.state_bytes, 3 * 4 * m.parameters + 4);  // and the count of steps
  EXPECT_EQ(m.outputs, 4 * 4 * m.parameters + 4 + 4);  // and the loss
}

std::string message_of_global_batch(int64_t batch, bool also_batch = false) {
  Job job;
  job.model = "fsdm-lag";
  try {
    apply_setting(job, "framework", "jax", "test");
    apply_setting(job, "replicas", 8, "test");
    apply_setting(job, "global_batch", batch, "test");
    if (also_batch) apply_setting(job, "batch", 4, "test");
    resolve_model(job);
  } catch (const Error& e) {
    return std::string(e.what()) + " " + e.hint();
  }
  return fmt::format("{} each", job.batch);
}

TEST(GlobalBatch, IsDividedAmongTheReplicasOrRefusedWithTheNearest) {
  EXPECT_EQ(message_of_global_batch(32), "4 each");
  EXPECT_NE(message_of_global_batch(12).find("8 and 16"), std::string::npos);
  EXPECT_NE(message_of_global_batch(4).find("the least is 8"), std::string::npos);
  EXPECT_NE(message_of_global_batch(0).find("global_batch is 0"), std::string::npos);
  EXPECT_NE(message_of_global_batch(32, true).find("leave one of them out"), std::string::npos);
}

TEST(GlobalBatch, IsASettingOfJax) {
  Job job;
  job.model = "fsdm-lag";
  apply_setting(job, "global_batch", 8, "test");
  EXPECT_EQ(problems(job).front().what, "[job] global_batch is a setting of framework jax, and the framework is pytorch");
}

TEST(Fsdm, CheckpointedBlocksKeepLessInPyTorchToo) {
  auto peak = [](bool remat) { return ideal_timeline(simulate(small_job({{"depth", 3}, {"use_remat", remat}}, 4)).trace).peak().bytes; };
  EXPECT_LT(peak(true), peak(false));
}

}  // namespace
}  // namespace plimsoll::fsdm_test
