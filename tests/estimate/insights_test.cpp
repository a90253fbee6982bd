// What stands out in an estimate: each detector where it has something to say, and where it has not.
#include "estimate/insights.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "estimate/fit.h"
#include "job/settings.h"
#include "support.h"

namespace plimsoll::insights_test {
namespace {

using Json = nlohmann::json;

std::map<std::string, Insight> found_in(const char* model, const Json& settings) {
  const Job job = job_of(model, settings);
  Runs runs;
  const Estimate e = estimate(runs, job, 0);
  std::map<std::string, Insight> out;
  for (Insight& i : insights(e, *runs.execute(job, target_of(job, {})))) {
    EXPECT_GT(i.bytes.count, 0) << i.name;
    EXPECT_LE(i.bytes, std::max(e.peak, e.memory->reserved.bytes)) << i.name;
    EXPECT_FALSE(i.text.empty()) << i.name;
    out[i.name] = std::move(i);
  }
  return out;
}

// The detector fires on the first and is silent on the second, which differs in one setting.
struct Pair {
  const char* name;
  const char* model;
  Json fires;
  Json silent;
  const char* flags;
};

class EachInsight : public testing::TestWithParam<Pair> {};

TEST_P(EachInsight, FiresWhereItShouldAndIsSilentWhereItShouldNot) {
  const Pair& p = GetParam();
  Json without = p.fires;
  without.update(p.silent);
  const std::map<std::string, Insight> yes = found_in(p.model, p.fires), no = found_in(p.model, without);
  ASSERT_TRUE(yes.contains(p.name));
  EXPECT_EQ(yes.at(p.name).flags, p.flags);
  EXPECT_FALSE(no.contains(p.name));
}

const Json kLora{{"r", 8}};
INSTANTIATE_TEST_SUITE_P(
    One, EachInsight,
    testing::Values(
        Pair{"math_attention",
             "llama-3.2-1b",
             {{"seq", 1024}, {"precision", "fp32"}, {"lora", kLora}},
             {{"precision", "amp"}},
             "--precision amp"},
        Pair{"eager_attention", "gpt2", {{"seq", 1024}, {"attention", "eager"}}, {{"attention", "auto"}}, "--attention auto"},
        Pair{"fp32_weights_under_adapter",
             "llama-3.2-1b",
             {{"seq", 64}, {"precision", "amp"}, {"lora", kLora}},
             {{"precision", "bf16"}},
             "--precision bf16"},
        Pair{"fp32_logits",
             "llama-3.2-1b",
             {{"seq", 2048}, {"precision", "bf16"}},
             {{"loss_kernel", "chunked"}},
             "--loss-kernel liger, or --loss-kernel chunked"},
        Pair{"foreach_temporaries", "gpt2", {{"seq", 64}}, {{"optimizer_args", {{"fused", true}}}}, "--optimizer-args fused=true"},
        Pair{"optimizer_state", "gpt2", {{"seq", 64}}, {{"optimizer", "AdamW8bit"}}, "--optimizer AdamW8bit"},
        Pair{"key_value_cache",
             "gpt2",
             {{"seq", 1024}, {"batch", 8}, {"offload_activations", true}, {"loss_kernel", "chunked"}},
             {{"config", {{"use_cache", false}}}},
             "--config use_cache=false"},
        Pair{"peak_outside_training", "gpt2", {{"seq", 256}, {"batch", 1}, {"eval_batch", 32}}, {{"eval_batch", 1}}, "--eval-batch 1"},
        Pair{"gradients_in_forward", "gpt2", {{"seq", 512}, {"batch", 8}, {"accumulation", 2}}, {{"accumulation", 1}}, "--accumulation 1"},
        Pair{"activations", "gpt2", {{"seq", 512}, {"batch", 8}}, {{"checkpointing", true}}, "--checkpointing"},
        Pair{"fragmentation",
             "gpt2",
             {{"seq", 256}, {"batch", 4}, {"checkpointing", true}},
             {{"alloc_conf", "expandable_segments:True"}},
             "--alloc-conf expandable_segments:True"},
        Pair{"ema_on_device", "gpt2", {{"seq", 64}, {"ema", true}}, {{"ema_place", "host"}}, "--ema-place host"},
        Pair{"master_weights",
             "gpt2",
             {{"seq", 64}, {"precision", "bf16"}, {"master_weights", "fp32"}},
             {{"master_weights", "none"}},
             "--master-weights none"},
        Pair{"frozen_weights",
             "llama-3.2-1b",
             {{"seq", 64}, {"precision", "bf16"}, {"lora", kLora}},
             {{"quantization", "nf4"}},
             "--quantization nf4"},
        Pair{"uneven_ranks", "gpt2", {{"seq", 64}, {"zero1", {{"world", 8}}}}, {{"zero1", false}}, ""},
        Pair{"state_not_donated", "gpt2", {{"seq", 64}, {"framework", "jax"}}, {{"donate", true}}, "--donate"}),
    [](const testing::TestParamInfo<Pair>& info) { return std::string(info.param.name); });

TEST(Insights, AreAllTested) {
  const std::set<std::string> tested{"math_attention",       "eager_attention",       "fp32_weights_under_adapter",
                                     "fp32_logits",          "foreach_temporaries",   "optimizer_state",
                                     "key_value_cache",      "peak_outside_training", "uneven_ranks",
                                     "gradients_in_forward", "activations",           "fragmentation",
                                     "ema_on_device",        "master_weights",        "frozen_weights",
                                     "state_not_donated"};
  for (const std::string& name : insight_names()) EXPECT_TRUE(tested.contains(name)) << name;
}

TEST(Insights, HaveTheLargestFirst) {
  const Job job = job_of("gpt2", {{"seq", 1024}, {"batch", 4}, {"attention", "eager"}});
  Runs runs;
  const std::vector<Insight> all = insights(estimate(runs, job, 0), *runs.execute(job, target_of(job, {})));
  ASSERT_GE(all.size(), 2u);
  for (size_t i = 1; i < all.size(); ++i) EXPECT_GE(all[i - 1].bytes, all[i].bytes);
}

TEST(Insights, OfActivationsLeaveOutWhatOthersSayBetter) {
  const std::map<std::string, Insight> eager = found_in("gpt2", {{"seq", 1024}, {"batch", 4}, {"attention", "eager"}}),
                                       fused = found_in("gpt2", {{"seq", 1024}, {"batch", 4}});
  ASSERT_TRUE(eager.contains("eager_attention"));
  if (eager.contains("activations")) {
    EXPECT_LE(eager.at("activations").bytes.count, fused.at("activations").bytes.count * 3 / 2);
  }
}

}  // namespace
}  // namespace plimsoll::insights_test
