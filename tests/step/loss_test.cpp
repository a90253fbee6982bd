// Cross-entropies of Liger, torchtune and Apple, Liger's layers: figures by hand, and what is refused. Whole runs are compared in
// truth_test.cpp (tests/truth/losses.jsonl).
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "allocator/timeline.h"
#include "simulate.h"
#include "support.h"

namespace plimsoll::loss_test {
namespace {

using Json = nlohmann::json;
using Settings = std::vector<std::pair<const char*, Json>>;

// 3 rows of 40 tokens, 1000 words, hidden states of 64, all in bf16; one step.
Job tiny(const char* family, const Settings& settings) {
  Job job;
  job.model = family;
  const Json config{{"vocab_size", 1000},       {"hidden_size", 64},        {"intermediate_size", 176},      {"num_hidden_layers", 2},
                    {"num_attention_heads", 4}, {"num_key_value_heads", 2}, {"max_position_embeddings", 256}};
  const Settings common{{"config", config}, {"seq", 40}, {"precision", "bf16"}, {"steps", 1}};
  for (const auto& [key, value] : common) apply_setting(job, key, value, "test");
  for (const auto& [key, value] : settings) apply_setting(job, key, value, "test");
  if (job.collation.lengths.empty()) job.batch = 3;
  resolve_model(job);
  return job;
}

std::string refusal(const char* family, const Settings& settings) {
  return error_of([&] { simulate(tiny(family, settings)); });
}

int64_t peak(const Job& job) { return ideal_timeline(simulate(job).trace).peak().bytes; }

TEST(LigerLoss, MultipliesInChunksOfAPowerOfTwo) {
  // 120 rows; 1000 words are ceil(1000 / 64) = 16 times as wide as the states, ceil(120 / 16) = 8 rows a chunk
  const Trace trace = simulate(tiny("llama", {{"loss_kernel", "liger"}})).trace;
  EXPECT_EQ(count(trace, Phase::forward, "mm", 8 * 1000 * 2), 15);
  EXPECT_EQ(count(trace, Phase::forward, "mm", 1000 * 64 * 2), 15);        // each chunk's gradient of the weight
  EXPECT_EQ(count(trace, Phase::forward, "_to_copy", 1000 * 64 * 4), 15);  // and that in fp32
  EXPECT_EQ(count(trace, Phase::forward, "zeros_like", 1000 * 64 * 2), 1);
  EXPECT_EQ(count(trace, Phase::forward, "zeros_like", 120 * 64 * 2), 1);
  EXPECT_EQ(count(trace, Phase::forward, "zeros", 120 * 4), 1);
}

TEST(LigerLoss, AddsIntoAnFp32SumWithoutAProductUnderAutocast) {
  const Trace trace = simulate(tiny("llama", {{"loss_kernel", "liger"}, {"precision", "amp"}})).trace;
  EXPECT_EQ(count(trace, Phase::forward, "mm", 1000 * 64 * 4), 0);
  EXPECT_EQ(count(trace, Phase::forward, "zeros_like", 1000 * 64 * 4), 1);
  // weight.t() is cast for each chunk, the weight itself once
  EXPECT_EQ(count(trace, Phase::forward, "_to_copy", 1000 * 64 * 2), 15 + 1);
}

TEST(LigerLoss, IsNotUsedInEvaluation) {
  const Trace trace = simulate(tiny("llama", {{"loss_kernel", "liger"}, {"eval_batch", 3}})).trace;
  EXPECT_GT(count(trace, Phase::evaluation, "mm", 120 * 1000 * 2), 0);
  EXPECT_EQ(count(trace, Phase::forward, "mm", 120 * 1000 * 2), 0);
}

TEST(ChunkedLoss, SplitsTheTokensThatHaveALabel) {
  // 3 x 39 = 117 tokens in 8 chunks: five of 15, three of 14
  const Trace trace = simulate(tiny("llama", {{"loss_kernel", "chunked"}})).trace;
  EXPECT_EQ(count(trace, Phase::forward, "mm", 15 * 1000 * 2), 5);
  EXPECT_EQ(count(trace, Phase::forward, "mm", 14 * 1000 * 2), 3);
  EXPECT_EQ(count(trace, Phase::forward, "_to_copy", 15 * 1000 * 4), 5);
  EXPECT_EQ(count(trace, Phase::forward, "index_select", 117 * 64 * 2), 1);
}

TEST(ChunkedLoss, TakesTheNumberOfChunks) {
  const Trace trace =
      simulate(tiny("gpt2", {{"loss_kernel", "chunked"}, {"loss_chunks", 3}, {"config", {{"n_embd", 64}, {"n_head", 4}, {"n_layer", 1}}}}))
          .trace;
  EXPECT_EQ(count(trace, Phase::forward, "mm", 39 * 1000 * 2), 3);
}

TEST(CutLoss, MakesVectorsInsteadOfLogits) {
  const Trace trace = simulate(tiny("llama", {{"loss_kernel", "cut"}})).trace;
  EXPECT_EQ(count(trace, Phase::forward, "new_full", 117 * 4), 1);   // log-sum-exp
  EXPECT_EQ(count(trace, Phase::forward, "new_full", 1000 * 4), 1);  // average logits, for the order of the words
  EXPECT_EQ(count(trace, Phase::backward, "zeros_like", 1000 * 64 * 2), 1);
  EXPECT_EQ(count(trace, Phase::backward, "zeros_like", 120 * 64 * 2), 1);
  EXPECT_EQ(count(trace, Phase::backward, "new_zeros", 8 * 1 * 4), 1);  // locks: ceil(1000 / 128) x ceil(64 / 64)
  for (const StorageRecord& s : trace.storages)
    if (s.phase == Phase::forward && s.born_as != Category::workspace) {
      EXPECT_LT(s.bytes, 117 * 1000 * 2);
    }
}

TEST(LossKernels, LowerThePeakOfAWideVocabulary) {
  auto with = [](const char* kernel) {
    return peak(
        tiny("llama", {{"loss_kernel", kernel}, {"optimizer", "SGD"}, {"config", {{"vocab_size", 50000}, {"num_hidden_layers", 1}}}}));
  };
  const int64_t own = with("model");
  EXPECT_LT(with("chunked-output"), own);
  EXPECT_LT(with("cut"), with("chunked"));
  EXPECT_LT(with("cut"), own);
}

TEST(LossKernels, AFamilyThatTheLibraryDoesNotPatchIsAnErrorThatListsThoseItDoes) {
  const std::string liger = refusal("gpt2", {{"loss_kernel", "liger"}}), cut = refusal("qwen3", {{"loss_kernel", "cut"}});
  EXPECT_NE(liger.find("gpt2"), std::string::npos) << liger;
  EXPECT_NE(liger.find("qwen3, "), std::string::npos) << liger;
  EXPECT_NE(cut.find("gemma2, llama, mistral, phi3, qwen2"), std::string::npos) << cut;
  EXPECT_NE(refusal("gpt2", {{"liger_kernels", "all"}}).find("llama"), std::string::npos);
}

TEST(LossKernels, WrongValuesAreErrors) {
  EXPECT_NE(refusal("llama", {{"loss_kernel", "ligr"}}).find("did you mean 'liger'"), std::string::npos);
  EXPECT_NE(refusal("llama", {{"loss_kernel", 3}}), "");
  EXPECT_NE(refusal("llama", {{"loss_kernel", "chunked"}, {"loss_chunks", 0}}), "");
  EXPECT_NE(refusal("llama", {{"loss_kernel", "chunked"}, {"loss_chunks", -1}}), "");
  EXPECT_NE(refusal("llama", {{"liger_kernels", "layer_norm"}}).find("rms_norm"), std::string::npos);
  EXPECT_NE(refusal("bert", {{"loss_kernel", "chunked"}}).find("causal"), std::string::npos);
  EXPECT_NE(refusal("llama-classifier", {{"loss_kernel", "chunked"}}).find("causal"), std::string::npos);
  EXPECT_NE(refusal("llama", {{"loss_kernel", "chunked"}, {"loss", "logits-sum"}}).find("logits-sum"), std::string::npos);
  EXPECT_NE(refusal("llama", {{"loss_kernel", "liger"}, {"lora", "r=4,target_modules=lm_head"}}).find("head"), std::string::npos);
  EXPECT_NE(refusal("llama", {{"loss_kernel", "cut"}, {"seq", 1}}).find("label"), std::string::npos);
}

TEST(LossKernels, MoreChunksThanTokensLeaveSomeEmpty) {
  EXPECT_EQ(refusal("llama", {{"loss_kernel", "chunked"}, {"loss_chunks", 500}}), "");
  EXPECT_EQ(refusal("llama", {{"loss_kernel", "chunked-output"}, {"loss_chunks", 50}}), "");
}

TEST(LigerLayers, KeepTheInputAndOneNumberARow) {
  const Trace trace = simulate(tiny("llama", {{"liger_kernels", "all"}})).trace;
  EXPECT_EQ(count(trace, Phase::forward, "LigerRMSNorm", 120 * 64 * 2), 5);  // two a layer and the last
  EXPECT_EQ(count(trace, Phase::forward, "LigerRMSNorm", 120 * 4), 5);
  EXPECT_EQ(count(trace, Phase::forward, "LigerSiLUMul", 120 * 176 * 2), 2);
  EXPECT_EQ(count(trace, Phase::backward, "LigerRMSNormBackward", 132 * 64 * 4), 5);  // a row for each multiprocessor
  const Job own = tiny("llama", {{"optimizer", "SGD"}}), liger = tiny("llama", {{"optimizer", "SGD"}, {"liger_kernels", "all"}});
  EXPECT_LT(peak(liger), peak(own));
}

}  // namespace
}  // namespace plimsoll::loss_test
