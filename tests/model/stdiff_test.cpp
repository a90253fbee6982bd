// STDiff: its parts, its settings, the path of its equation, and where its tensors come from.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "model/diffusion/brownian_interval.h"
#include "model/diffusion/sdeint.h"
#include "model/resolve.h"
#include "ops/matmul.h"
#include "ops/pointwise.h"
#include "simulate.h"
#include "step/train.h"
#include "systems/source_locations.h"

namespace plimsoll::stdiff_test {
namespace {

const nlohmann::json kSmall{
    {"height", 16},         {"width", 32}, {"observed", 2}, {"predicted", 2}, {"block_out_channels", {32, 64}}, {"attention_head_dim", 32},
    {"model_channels", 16}, {"steps", 1}};

Job job_of(nlohmann::json config, const std::string& model = "stdiff") {
  Job job;
  job.model = model;
  if (config.contains("steps")) job.steps = config["steps"];
  config.erase("steps");
  job.config = Config("stdiff", config);
  resolve_model(job);
  return job;
}

nlohmann::json small(const nlohmann::json& changes) {
  nlohmann::json config = kSmall;
  config.update(changes);
  return config;
}

std::string error_of(const nlohmann::json& changes) {
  try {
    simulate(job_of(small(changes)));
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

// Elements of the fp32 parameters under a module.
int64_t parameters_in(const Trace& trace, const std::string& module) {
  int64_t n = 0;
  for (const StorageRecord& s : trace.storages)
    if (s.born_as == Category::parameter && (trace.scope_path(s.scope) + ".").starts_with(module + ".")) n += s.bytes / 4;
  return n;
}

TEST(Stdiff, EveryPartHasTheParametersOfThePythonModel) {
  Job job = job_of({{"observed", 2}, {"predicted", 1}, {"width", 64}, {"steps", 1}}, "stdiff-kitti-64x2048");
  const Simulation s = simulate(job);
  EXPECT_EQ(s.parameters, 204'223'297);
  EXPECT_EQ(parameters_in(s.trace, "tde_model.motion_encoder"), 1'812'480);
  EXPECT_EQ(parameters_in(s.trace, "tde_model.conv_gru_cell"), 3'539'712);
  EXPECT_EQ(parameters_in(s.trace, "tde_model.diff_unet.diff_unet_f"), 2'360'320);
  EXPECT_EQ(parameters_in(s.trace, "tde_model.diff_unet.diff_unet_g"), 2'360'320);
  EXPECT_EQ(parameters_in(s.trace, "diffusion_unet"), 194'150'465);
  EXPECT_EQ(parameters_in(s.trace, "diffusion_unet.conv_in"), 2'432);
  EXPECT_EQ(parameters_in(s.trace, "diffusion_unet.time_embedding"), 328'704);
  const int64_t down[]{2'640'640, 7'020'800, 7'282'944, 22'233'344, 20'922'112};
  const int64_t up[]{42'398'336, 41'087'104, 13'450'240, 12'466'432, 4'445'504};
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(parameters_in(s.trace, "diffusion_unet.down_blocks." + std::to_string(i)), down[i]);
    EXPECT_EQ(parameters_in(s.trace, "diffusion_unet.up_blocks." + std::to_string(i)), up[i]);
  }
  EXPECT_EQ(parameters_in(s.trace, "diffusion_unet.mid_block"), 19'870'464);
  EXPECT_EQ(parameters_in(s.trace, "diffusion_unet.conv_norm_out") + parameters_in(s.trace, "diffusion_unet.conv_out"), 1'409);
}

TEST(Stdiff, CheckpointingReachesOnlyTheBlocksWithoutAttention) {
  Job job = job_of(small({{"part", "unet"}}));
  job.checkpointing.on = true;
  const Trace trace = simulate(job).trace;
  // Recomputed in backward: activations whose op belongs to forward.
  std::set<std::string> recomputed;
  for (const StorageRecord& s : trace.storages)
    if (s.phase == Phase::backward && trace.names[s.op] == "native_group_norm") recomputed.insert(trace.scope_path(s.scope));
  EXPECT_TRUE(recomputed.contains("diffusion_unet.down_blocks.0.resnets.0.norm1"));
  EXPECT_TRUE(recomputed.contains("diffusion_unet.up_blocks.1.resnets.2.norm2"));
  for (const std::string& path : recomputed)
    EXPECT_TRUE(path.starts_with("diffusion_unet.down_blocks.0.") || path.starts_with("diffusion_unet.up_blocks.1.")) << path;
  job.checkpointing.save = {"convolution"};
  EXPECT_THROW(simulate(job), Error);
}

TEST(Stdiff, SettingsHaveReadableNames) {
  const Job readable = job_of(small({{"attention_head_dim", 32}, {"use_xformers", false}}));
  const Job recorded = job_of({{"H", 16},
                               {"Wd", 32},
                               {"To", 2},
                               {"Tp", 2},
                               {"ch", {32, 64}},
                               {"head", 32},
                               {"xformers_on", false},
                               {"model_channels", 16},
                               {"steps", 1}});
  EXPECT_EQ(simulate(readable).trace.storages.size(), simulate(recorded).trace.storages.size());
}

TEST(Stdiff, WrongSettingsAreNamed) {
  const std::pair<nlohmann::json, const char*> cases[]{
      {{{"observed", 1}}, "observed is 1"},
      {{{"predicted", 100000}}, "predicted is 100000"},
      {{{"width", 31}}, "16 x 31 cannot be halved 2 times"},
      {{{"part", "vae"}}, "part is 'vae'"},
      {{{"block_out_channels", 64}}, "block_out_channels is 64"},
      {{{"block_out_channels", nlohmann::json::array()}}, "block_out_channels is []"},
      {{{"block_out_channels", {48, 64}}}, "32 groups do not divide 48 channels"},
      {{{"attention_head_dim", {32}}}, "attention_head_dim has 1 entries for 2 levels"},
      {{{"attention_head_dim", 128}}, "attention_head_dim 128"},
      {{{"m_channels", 32}}, "m_channels is 32"},
      {{{"in_channels", 1}}, "in_channels is 1"},
      {{{"dt", 0}}, "dt is 0"},
      {{{"down_block_types", {"DownBlock2D", "CrossAttnDownBlock2D"}}}, "CrossAttnDownBlock2D"},
      {{{"hieght", 16}}, "hieght"},
  };
  for (const auto& [changes, message] : cases)
    EXPECT_NE(error_of(changes).find(message), std::string::npos) << message << " in: " << error_of(changes);
}

TEST(Stdiff, HalfWeightsOfTheMotionModelAreRefusedAsInPython) {
  Job job = job_of(kSmall);
  job.precision = Precision::bf16;
  EXPECT_THROW(simulate(job), Error);
  job.autocast = true;
  EXPECT_NO_THROW(simulate(job));
}

// ---- the equation -----------------------------------------------------------------------------------------------------

int64_t alive_of(const Trace& trace, const char* op) {
  int64_t n = 0;
  for (const Event& e : trace.events)
    if (e.kind != Event::Kind::relabel && e.kind != Event::Kind::phase && e.kind != Event::Kind::step &&
        trace.names[trace.storages[e.storage].op] == op)
      n += e.kind == Event::Kind::alloc ? 1 : -1;
  return n;
}

TEST(BrownianInterval, KeepsTheNewest45IncrementsAndForgetsOlderOnes) {
  Tape tape;
  BrownianInterval path(tape, 0, 10, {1, 8}, DType::float32);
  for (int i = 0; i < 100; ++i) path(i / 10.0, (i + 1) / 10.0);
  EXPECT_EQ(alive_of(tape.trace, "randn"), 0);
  // 2 of the whole path; sums are left halves, differences right ones
  EXPECT_EQ(alive_of(tape.trace, "mul"), 2);
  EXPECT_EQ(alive_of(tape.trace, "add") + alive_of(tape.trace, "sub"), 45);
}

TEST(BrownianInterval, AnIncrementThatIsKnownCostsNothing) {
  Tape tape;
  BrownianInterval path(tape, 0, 1, {1, 8}, DType::float32);
  path(0, 0.5);
  const size_t before = tape.trace.storages.size();
  path(0, 0.5);
  EXPECT_EQ(tape.trace.storages.size(), before);
  path(0, 1);  // the whole: kept from the beginning
  EXPECT_EQ(tape.trace.storages.size(), before);
  path(0.25, 0.75);  // two quarters
  EXPECT_GT(tape.trace.storages.size(), before);
}

struct LinearSde {
  explicit LinearSde(Tape& tape) {
    weight = make_parameter(tape, parameter, {8, 8}, DType::float32);
    sde.drift = sde.diffusion = [this](const Tensor& y) { return mm(y, weight); };
    sde.parameters = {weight};
  }
  Parameter parameter;
  Tensor weight;
  Sde sde;
};

int64_t steps_of(const TimeGrid& grid) {
  Tape tape;
  LinearSde linear(tape);
  const size_t before = tape.trace.storages.size();
  sdeint_adjoint(linear.sde, empty(tape, {1, 8}, DType::float32), grid);
  int64_t products = 0;
  for (size_t i = before; i < tape.trace.storages.size(); ++i) products += tape.trace.names[tape.trace.storages[i].op] == "mm";
  return (products - 2) / 3;  // two tries; a drift and two diffusions a step
}

TEST(Sdeint, TimesInSinglePrecisionCostAStepWhenTheirSumFallsShort) {
  EXPECT_EQ(steps_of({.start = 0, .points = 3, .dt = 0.1, .single = true}), 20);
  EXPECT_EQ(steps_of({.start = 1, .points = 3, .dt = 0.1, .single = true}), 21);
  EXPECT_EQ(steps_of({.start = 1, .points = 3, .dt = 0.1, .single = false}), 20);
  EXPECT_EQ(steps_of({.start = 0, .points = 2, .dt = 0.25, .single = true}), 4);
}

TEST(Sdeint, GradientsOfParametersAreViewsOfTheAdjointsLastStates) {
  Tape tape;
  LinearSde linear(tape);
  const SdeSolution solution = sdeint_adjoint(linear.sde, empty(tape, {1, 8}, DType::float32), {.points = 3});
  EXPECT_EQ(solution.states.sizes(), (Dims{3, 1, 8}));
  run_backward(solution.states, empty_like(solution.states));
  ASSERT_TRUE(linear.parameter.grad);
  EXPECT_EQ(linear.parameter.grad.sizes(), (Dims{8, 8}));
  EXPECT_EQ(linear.parameter.grad.storage().bytes, 2 * 4 * (8 + 8 + 64));  // two times [state, its gradient, the weight's]
}

TEST(Gradients, AreNotAccumulatedAndLeaveTheGraph) {
  Tape tape;
  Parameter parameter, unused;
  const Tensor w = make_parameter(tape, parameter, {4, 4}, DType::float32), other = make_parameter(tape, unused, {4}, DType::float32);
  const Tensor y = tanh(mm(w, w));
  for (int i = 0; i < 2; ++i) {
    const Tensors found = gradients({y}, {empty_like(y)}, {w, other});
    ASSERT_TRUE(found[0]);
    EXPECT_EQ(found[0].sizes(), (Dims{4, 4}));
    EXPECT_FALSE(found[1]);
  }
  EXPECT_FALSE(parameter.grad);
  run_backward(y, empty_like(y));
  EXPECT_TRUE(parameter.grad);
}

// ---- source locations -------------------------------------------------------------------------------------------------

std::string where(std::string_view path, std::string_view op = {}) {
  const SourceLocation* found = source_of("stdiff", path, op);
  return found ? found->where : "";
}

TEST(SourceLocations, TheDeepestNamedPartWins) {
  EXPECT_EQ(where("diffusion_unet.down_blocks.0.resnets.1.conv1", "convolution"), "diffusers/models/resnet.py:558");
  EXPECT_EQ(where("diffusion_unet.down_blocks.0.resnets.1.motion_cond_layer", "upsample_nearest2d"), "diffusers/models/resnet.py:623");
  EXPECT_EQ(where("diffusion_unet.up_blocks.3.attentions.2", "baddbmm"), "diffusers/models/attention.py:148-160");
  EXPECT_EQ(where("diffusion_unet.up_blocks.3", "cat"), "diffusers/models/unet_2d_blocks.py:1734,1937");
  EXPECT_EQ(where("tde_model.diff_unet.diff_unet_g.net.2", "convolution"), "stdiff/models/diff_unet.py:150-159");
  EXPECT_EQ(where("", "input"), "stdiff/train_stdiff.py:265-302");
}

TEST(SourceLocations, WhatNoEntryNamesIsItsPartOrNothing) {
  EXPECT_EQ(where("diffusion_unet.mid_block", "clone"), "diffusers/models/unet_2d_motion_cond.py:301");
  EXPECT_EQ(where("somewhere.else", "cat"), "stdiff/models/stdiff_diffusers.py:22-49");
  EXPECT_EQ(source_of("gpt2", "transformer.h.0", "addmm"), nullptr);
}

}  // namespace
}  // namespace plimsoll::stdiff_test
