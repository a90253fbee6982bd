// Adapters, packed weights and scaled losses under fully_shard and FullyShardedDataParallel: what PyTorch or PEFT would refuse is an error
// that says what to take instead, and what is sharded is a part. Equality with recorded runs is in truth_test.cpp
// (tests/truth/sharded_adapters.jsonl, tests/truth/loss_scaling.jsonl).
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "allocator/timeline.h"
#include "job/packed_storage.h"
#include "job/settings.h"
#include "model/resolve.h"
#include "simulate.h"
#include "step/train.h"
#include "support.h"

namespace plimsoll::sharded_adapters_test {
namespace {

using Json = nlohmann::json;

Job small_llama(const Json& settings) {
  Job job;
  job.model = "llama";
  job.batch = 2;
  job.seq = 64;
  job.origin["seq"] = "test";
  resolve_model(job);
  apply_setting(job, "config",
                {{"num_hidden_layers", 6},
                 {"hidden_size", 64},
                 {"intermediate_size", 96},
                 {"num_attention_heads", 8},
                 {"num_key_value_heads", 4},
                 {"vocab_size", 64}},
                "test");
  for (const auto& [key, value] : settings.items()) apply_setting(job, key, value, "test");
  return job;
}

std::string refusal(const Json& settings) {
  return error_of([&] { simulate(small_llama(settings)); });
}

bool says(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

int64_t peak_of(const Json& settings) { return ideal_timeline(simulate(small_llama(settings)).trace).peak().bytes; }

const Json kLora{{"r", 4}, {"target_modules", {"q_proj", "v_proj"}}};

TEST(ShardedAdapters, OneGroupTrainsOneType) {
  Json biased = kLora;
  biased["bias"] = "all";
  const Json config{{"num_hidden_layers", 2},   {"hidden_size", 64}, {"intermediate_size", 96}, {"num_attention_heads", 8},
                    {"num_key_value_heads", 4}, {"vocab_size", 64},  {"attention_bias", true}};
  const Json mixed{{"config", config}, {"precision", "bf16"}, {"lora", biased}, {"fsdp", "world=4"}};
  EXPECT_TRUE(says(refusal(mixed), "one type for all that a group trains")) << refusal(mixed);
  Json same = mixed;
  same["lora"]["dtype"] = "base";
  EXPECT_EQ(refusal(same), "");
}

TEST(ShardedAdapters, FrozenBasesAreShardedToo) {
  const Json alone{{"precision", "bf16"}, {"lora", kLora}};
  const int64_t whole = simulate(small_llama(alone)).parameters;
  for (const char* kind : {"fsdp", "fsdp1"}) {
    Json spread = alone;
    spread[kind] = "world=4";
    const Simulation rank = simulate(small_llama(spread));
    EXPECT_NEAR(static_cast<double>(rank.parameters), static_cast<double>(whole) / 4, 64.0) << kind;
    EXPECT_LT(rank.trainable, rank.parameters / 10) << kind;
  }
}

TEST(ShardedAdapters, UnitsOfTheirOwnCannotDoWhatPeftAsksOfAWholeWeight) {
  Json dora = kLora, saved = kLora;
  dora["use_dora"] = true;
  saved["modules_to_save"] = {"lm_head"};
  const Json half{{"precision", "bf16"}, {"fsdp1", "world=4"}};
  Json job = half;
  job["lora"] = dora;
  EXPECT_TRUE(says(refusal(job), "second dimension")) << refusal(job);
  job["lora"] = saved;
  EXPECT_TRUE(says(refusal(job), "units of their own")) << refusal(job);
  job["lora"] = kLora;
  EXPECT_EQ(refusal(job), "");
  job["fsdp1"] = "world=4,param_dtype=bf16";
  EXPECT_TRUE(says(refusal(job), "refuses to multiply fp32 by bf16")) << refusal(job);
  job["autocast"] = true;
  EXPECT_EQ(refusal(job), "");
}

// The hook on a frozen block's input holds the leaf that a reentrant checkpoint around the block makes, and so its gradient. The peak is
// then at the first block, where the adapters' gradients are there, too.
TEST(ShardedAdapters, AReentrantCheckpointKeepsTheGradientOfEveryFrozenBlocksInput) {
  const auto peak = [](bool reentrant, int64_t layers) {
    const Json config{{"num_hidden_layers", layers}, {"hidden_size", 64},        {"intermediate_size", 96},
                      {"num_attention_heads", 8},    {"num_key_value_heads", 4}, {"vocab_size", 64}};
    return peak_of({{"config", config},
                    {"precision", "bf16"},
                    {"lora", kLora},
                    {"checkpointing", {{"reentrant", reentrant}}},
                    {"transformers", "4.51"},
                    {"fsdp1", "world=64"}});
  };
  const int64_t hidden = 2 * 64 * 64 * 2;  // batch x tokens x width x bytes
  const int64_t without = peak(false, 40) - peak(false, 20), with = peak(true, 40) - peak(true, 20);
  EXPECT_GE(with - without, 20 * hidden);
  EXPECT_LT(with - without, 21 * hidden);
}

TEST(ShardedAdapters, PackedWeightsAreShardedInAFloatingType) {
  const Json packed{{"precision", "bf16"}, {"lora", kLora}, {"quantization", "nf4"}, {"fsdp", "world=4"}};
  EXPECT_TRUE(says(refusal(packed), "nf4-bf16")) << refusal(packed);
  Json stored = packed;
  stored["quantization"] = {{"type", "nf4"}, {"storage", "bf16"}};
  EXPECT_EQ(refusal(stored), "");
  stored["fsdp"] = "world=4,param_dtype=fp16";
  EXPECT_TRUE(says(refusal(stored), "set param_dtype: bf16")) << refusal(stored);
}

TEST(ShardedAdapters, AStorageIsTheEndOfAType) {
  EXPECT_EQ(parse_quantization({{"type", "fp4"}, {"storage", "fp32"}}).type, "fp4-fp32");
  EXPECT_EQ(packed_storage(parse_quantization("nf4-bf16")), WireType::bf16);
  EXPECT_EQ(packed_storage(parse_quantization("nf4")), std::nullopt);
  EXPECT_FALSE(parse_quantization("nf4-bf16").prepare);
  EXPECT_TRUE(says(error_of([] { parse_quantization({{"type", "int8"}, {"storage", "bf16"}}); }), "storage bf16 of int8"));
  EXPECT_TRUE(says(error_of([] { parse_quantization({{"type", "nf4"}, {"storage", "bf8"}}); }), "storage bf8"));
}

// A storage changes the type of packed weights, not their bytes.
TEST(ShardedAdapters, AStorageCostsNothing) {
  const Json job{{"precision", "bf16"}, {"lora", kLora}, {"quantization", {{"type", "nf4"}, {"prepare", false}}}};
  Json stored = job;
  stored["quantization"]["storage"] = "bf16";
  EXPECT_EQ(peak_of(job), peak_of(stored));
}

}  // namespace
}  // namespace plimsoll::sharded_adapters_test
