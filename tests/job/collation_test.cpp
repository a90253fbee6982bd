// Padding and packing: the shapes that follow from lengths, what masks cost, and what is refused. Whole runs are compared in
// truth_test.cpp (tests/truth/padding.jsonl).
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "allocator/timeline.h"
#include "simulate.h"
#include "support.h"

namespace plimsoll::collation_test {
namespace {

using Json = nlohmann::json;
using Settings = std::vector<std::pair<const char*, Json>>;

Job job_with(const char* model, const Settings& settings) {
  Job job;
  job.model = model;
  apply_setting(job, "steps", 1, "test");
  for (const auto& [key, value] : settings) apply_setting(job, key, value, "test");
  resolve_model(job);
  return job;
}

std::string refusal(const char* model, const Settings& settings) {
  return error_of([&] { simulate(job_with(model, settings)); });
}

int64_t input_bytes(const Trace& trace) {
  int64_t sum = 0;
  for (const StorageRecord& s : trace.storages)
    if (s.born_as == Category::input) sum += s.bytes;
  return sum;
}

TEST(Collation, PadsToTheLongestSample) {
  Collation c;
  c.lengths = {40, 17, 9};
  const BatchShape s = batch_shape(c, 3, 40);
  EXPECT_EQ(s.rows, 3);
  EXPECT_EQ(s.tokens, 40);
  EXPECT_EQ(s.padding, Padding::mask);
  EXPECT_EQ(s.labelled, 39 + 16 + 8);
  c.pad_to_multiple_of = 64;
  EXPECT_EQ(batch_shape(c, 3, 40).tokens, 64);
}

TEST(Collation, SamplesOfOneLengthHaveAMaskOfOnes) {
  Collation c;
  c.lengths = {40, 40};
  EXPECT_EQ(batch_shape(c, 2, 40).padding, Padding::ones);
  c.pad_to_multiple_of = 64;
  EXPECT_EQ(batch_shape(c, 2, 40).padding, Padding::mask);
}

TEST(Collation, PacksAllSamplesIntoOneRow) {
  Collation c;
  c.lengths = {40, 17, 9};
  c.collate = Collate::pack;
  const BatchShape s = batch_shape(c, 3, 40);
  EXPECT_EQ(s.rows, 1);
  EXPECT_EQ(s.tokens, 66);
  EXPECT_EQ(s.packed_samples, 3);
  EXPECT_EQ(s.longest, 40);
  EXPECT_EQ(s.padding, Padding::none);
  EXPECT_EQ(s.labelled, 63);
}

TEST(Collation, ABatchOfAnotherSizeTakesTheLengthsInTurn) {
  Collation c;
  c.lengths = {10, 30};
  c.collate = Collate::pack;
  EXPECT_EQ(batch_shape(c, 5, 30).tokens, 10 + 30 + 10 + 30 + 10);
  EXPECT_EQ(batch_shape(c, 1, 30).longest, 10);
}

TEST(Collation, InputsAreWhatTheCollatorReturns) {
  const Settings lengths{{"lengths", {40, 17, 9}}};
  EXPECT_EQ(input_bytes(simulate(job_with("gpt2", lengths)).trace), 3 * 3 * 40 * 8);  // ids, mask, labels
  EXPECT_EQ(input_bytes(simulate(job_with("gpt2", {{"lengths", "40+17+9"}, {"collate", "pack"}})).trace), 3 * 66 * 8);
}

TEST(Padding, AMaskIsMadeOnceAndCastForEachLayer) {
  // (B, 1, T, T) of bools; scaled_dot_product_attention makes it additive, with rows of a multiple of 16
  const Trace trace = simulate(job_with("gpt2", {{"batch", 2}, {"seq", 48}, {"padding", "mask"}, {"precision", "bf16"}})).trace;
  EXPECT_GE(count(trace, Phase::forward, "bitwise_and", 2 * 48 * 48), 1);
  EXPECT_EQ(count(trace, Phase::forward, "where", 2 * 48 * 48 * 2), 12);
  const Trace ones = simulate(job_with("gpt2", {{"batch", 2}, {"seq", 48}, {"padding", "ones"}, {"precision", "bf16"}})).trace;
  EXPECT_EQ(count(ones, Phase::forward, "where", 2 * 48 * 48 * 2), 0);
}

TEST(Padding, APackedRowUnderSdpaHasABlockDiagonalMaskUnlessThereIsACache) {
  const Settings packed{{"lengths", {40, 8}}, {"collate", "pack"}, {"precision", "bf16"}};
  Settings without = packed;
  without.emplace_back("config", Json{{"use_cache", false}});
  EXPECT_GE(count(simulate(job_with("llama-3.2-1b", without)).trace, Phase::forward, "bitwise_and", 48 * 48), 1);
  EXPECT_EQ(count(simulate(job_with("llama-3.2-1b", packed)).trace, Phase::forward, "bitwise_and", 48 * 48), 0);
}

TEST(FlashAttention2, KeepsPackedSamplesApartWithoutAMask) {
  const Trace trace =
      simulate(
          job_with("llama-3.2-1b", {{"lengths", {40, 8}}, {"collate", "pack"}, {"precision", "bf16"}, {"attention", "flash-attention-2"}}))
          .trace;
  EXPECT_EQ(count(trace, Phase::forward, "bitwise_and", 48 * 48), 0);
  EXPECT_EQ(count(trace, Phase::forward, "flash_attn", 32 * 48 * 4), 16);  // log-sum-exp of 32 heads, 16 layers
  // backward: (48 + 128 x 2) rows of 32 heads, 64 wide, in fp32
  EXPECT_EQ(count(trace, Phase::backward, "flash_attn_backward", (48 + 256) * 32 * 64 * 4), 16);
  EXPECT_EQ(count(trace, Phase::backward, "flash_attn_backward", 48 * 32 * 64 * 2), 16 * 3);  // dq, and dk, dv of every query head
}

TEST(FlashAttention2, CopiesTokensThatAreNotPadding) {
  const Trace trace =
      simulate(job_with("llama-3.2-1b", {{"lengths", {40, 8}}, {"precision", "bf16"}, {"attention", "flash-attention-2"}})).trace;
  EXPECT_EQ(count(trace, Phase::forward, "index", 48 * 32 * 64 * 2), 16);                 // q
  EXPECT_EQ(count(trace, Phase::forward, "index", 48 * 8 * 64 * 2), 16 * 2);              // k, v
  EXPECT_EQ(count(trace, Phase::forward, "index_put_first_axis", 80 * 32 * 64 * 2), 16);  // back among the padding
}

TEST(FlashAttention2, IsRefusedWhereItCannotRun) {
  const std::pair<const char*, Json> fa2{"attention", "flash-attention-2"};
  EXPECT_NE(refusal("gpt2", {fa2, {"precision", "fp32"}}).find("bf16"), std::string::npos);
  EXPECT_NE(refusal("t5-small", {fa2}).find("attention"), std::string::npos);
  EXPECT_NE(refusal("vit_b_16", {fa2}).find("attention"), std::string::npos);
  EXPECT_EQ(refusal("bert-base", {fa2, {"padding", "mask"}}), "");
}

TEST(Collation, WrongValuesAreErrorsThatNameThem) {
  EXPECT_NE(refusal("gpt2", {{"lengths", {40, 0}}}).find("0"), std::string::npos);
  EXPECT_NE(refusal("gpt2", {{"lengths", {40, -3}}}).find("-3"), std::string::npos);
  EXPECT_NE(refusal("gpt2", {{"lengths", {40, 1.5}}}).find("1.5"), std::string::npos);
  EXPECT_NE(refusal("gpt2", {{"lengths", "40+x"}}).find("'x'"), std::string::npos);
  EXPECT_NE(refusal("gpt2", {{"lengths", Json::array()}}), "");
  EXPECT_NE(refusal("gpt2", {{"lengths", Json::object()}}), "");
  EXPECT_NE(refusal("gpt2", {{"lengths", "99999999999999999999"}}), "");
  EXPECT_NE(refusal("gpt2", {{"lengths", {INT64_MAX, INT64_MAX}}, {"collate", "pack"}}), "");
  EXPECT_NE(refusal("gpt2", {{"pad_to_multiple_of", INT64_MAX}}), "");
  EXPECT_NE(refusal("gpt2", {{"pad_to_multiple_of", 0}}), "");
  EXPECT_NE(refusal("gpt2", {{"padding", "left"}}).find("left"), std::string::npos);
  EXPECT_NE(refusal("gpt2", {{"collate", "packed"}}).find("did you mean 'pack'"), std::string::npos);
}

TEST(Collation, SettingsThatContradictEachOtherAreErrors) {
  EXPECT_NE(refusal("gpt2", {{"batch", 4}, {"lengths", {40, 17, 9}}}).find("batch 4 does not agree with 3 lengths"), std::string::npos);
  EXPECT_NE(refusal("gpt2", {{"seq", 32}, {"lengths", {40, 17}}}).find("40 tokens are more than seq 32"), std::string::npos);
  EXPECT_NE(refusal("gpt2", {{"longest", 90}, {"lengths", {40, 17}}}).find("longest"), std::string::npos);
  EXPECT_NE(refusal("gpt2", {{"collate", "pack"}}).find("lengths"), std::string::npos);
  EXPECT_NE(refusal("gpt2", {{"collate", "pack"}, {"lengths", {40, 17}}, {"padding", "mask"}}).find("packed"), std::string::npos);
  EXPECT_NE(refusal("gpt2", {{"collate", "pack"}, {"lengths", {40, 17}}, {"pad_to_multiple_of", 8}}).find("packed"), std::string::npos);
  EXPECT_NE(refusal("resnet50", {{"padding", "mask"}}).find("images"), std::string::npos);
  EXPECT_NE(refusal("resnet50", {{"lengths", {4}}}).find("images"), std::string::npos);
  EXPECT_NE(refusal("bert-classifier", {{"collate", "pack"}, {"lengths", {40, 17}}}).find("label"), std::string::npos);
}

TEST(Collation, SamplesBeyondTheModelsPositionsAreErrors) {
  EXPECT_NE(refusal("gpt2", {{"lengths", {2000, 17}}}).find("1024"), std::string::npos);
  EXPECT_EQ(refusal("gpt2", {{"lengths", {900, 800}}, {"collate", "pack"}}), "");  // each begins at 0
  EXPECT_NE(refusal("gpt2", {{"lengths", {1025, 8}}, {"collate", "pack"}}).find("1024"), std::string::npos);
}

TEST(Collation, AModelThatDoesNotLookAtPositionsCannotPack) {
  for (const char* model : {"bert-base", "t5-small", "opt-125m"})
    EXPECT_NE(refusal(model, {{"lengths", {40, 17}}, {"collate", "pack"}}).find("packed samples"), std::string::npos) << model;
}

}  // namespace
}  // namespace plimsoll::collation_test
