// The optimizer on the host (torchao's CPUOffloadOptimizer): what stays on the device, what the host has, what is refused.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "estimate/estimate.h"
#include "report/estimate_report.h"
#include "support.h"

namespace plimsoll::offload_test {
namespace {

using Json = nlohmann::json;

Job llama(const Json& settings) {
  Json all{{"config", {{"num_hidden_layers", 2}, {"tie_word_embeddings", false}}}, {"seq", 16}, {"precision", "bf16"}};
  all.update(settings);
  return job_of("llama-3.2-1b", all);
}

Bytes alive(const Estimate& e, const std::string& category) {
  for (const TreeNode& c : e.by_category.children)
    if (c.name == category) return c.bytes;
  return {};
}

std::string refusal(const Json& settings) {
  return error_of([&] { estimate(llama(settings)); });
}

TEST(OffloadedOptimizer, LeavesOnlyStatesOfSmallParametersOnTheDevice) {
  const Estimate here = estimate(llama({{"optimizer_args", {{"fused", true}}}})), there = estimate(llama({{"offload_optimizer", true}}));
  EXPECT_GT(alive(here, "optimizer state").count, 4 * here.parameters - 1000000);
  EXPECT_LT(alive(there, "optimizer state").count, 100000);  // norms of 2,048 elements
  EXPECT_LT(there.peak.count, here.peak.count - 3 * here.parameters);
  // A copy, a gradient and two states of two bytes each; pinned ones are rounded up to powers of two.
  EXPECT_GE(there.host_facts.optimizer.count, 8 * there.parameters - 1000000);
  EXPECT_LE(there.host_facts.optimizer.count, 12 * there.parameters);
  EXPECT_EQ(here.host_facts.optimizer.count, 0);
}

TEST(OffloadedOptimizer, GradientsLeaveTheDeviceAsTheyCome) {
  const Estimate kept = estimate(llama({{"offload_optimizer", true}})), gone = estimate(llama({{"offload_optimizer", "gradients=true"}}));
  EXPECT_LT(gone.peak.count, kept.peak.count - kept.parameters);
  EXPECT_EQ(gone.host_facts.optimizer.count, kept.host_facts.optimizer.count);
}

TEST(OffloadedOptimizer, WhatCannotBeCombinedIsAnErrorThatSaysWhatCan) {
  EXPECT_NE(refusal({{"offload_optimizer", true}, {"optimizer", "AdamW8bit"}}).find("bitsandbytes"), std::string::npos);
  EXPECT_NE(refusal({{"offload_optimizer", true}, {"optimizer", "adamw8bit"}}).find("torch.optim's run on the host"), std::string::npos);
  EXPECT_NE(refusal({{"offload_optimizer", "gradients=true"}, {"accumulation", 2}}).find("accumulation 2"), std::string::npos);
  EXPECT_NE(refusal({{"offload_optimizer", "gradients=true"}, {"clip", 1.0}}).find("clip 1"), std::string::npos);
  EXPECT_NE(refusal({{"offload_optimizer", true}, {"ddp", {{"world", 2}}}}).find("one device"), std::string::npos);
  EXPECT_NE(refusal({{"offload_optimizer", true}, {"optimizer_in_backward", true}}).find("leave one of them out"), std::string::npos);
  EXPECT_NE(refusal({{"offload_optimizer", "grads=true"}}).find("gradients"), std::string::npos);
  EXPECT_EQ(refusal({{"offload_optimizer", true}, {"accumulation", 2}}), "");
}

TEST(SwappedBlocks, FrozenWeightsOfThemAreOnTheHost) {
  const Json lora{{"r", 8}, {"target_modules", "all-linear"}};
  const Json four{{"num_hidden_layers", 4}};
  const Estimate all = estimate(llama({{"lora", lora}, {"config", four}}));
  const Estimate one = estimate(llama({{"lora", lora}, {"config", four}, {"swap_blocks", 1}}));
  const Estimate two = estimate(llama({{"lora", lora}, {"config", four}, {"swap_blocks", 2}}));
  EXPECT_GT(one.host_facts.weights.count, 2 * 2048 * (2048 + 512 + 512 + 2048 + 3 * 8192));  // the linear layers of a block, in bf16
  EXPECT_EQ(two.host_facts.weights.count, 2 * one.host_facts.weights.count);
  EXPECT_EQ(one.peak.count, all.peak.count - one.host_facts.weights.count);
  EXPECT_EQ(one.parameters, all.parameters);
  EXPECT_LT(two.memory->reserved.bytes.count, all.memory->reserved.bytes.count - one.host_facts.weights.count);  // never loaded there
}

TEST(SwappedBlocks, NeedsBlocksAndSomethingFrozen) {
  EXPECT_NE(refusal({{"swap_blocks", 1}}).find("frozen"), std::string::npos);
  EXPECT_NE(refusal({{"swap_blocks", 2}, {"lora", {{"r", 8}}}}).find("the model has 2 blocks"), std::string::npos);
  EXPECT_THROW(llama({{"swap_blocks", 0}}), Error);
}

}  // namespace
}  // namespace plimsoll::offload_test
