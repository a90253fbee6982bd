// Published GPU measurements: rows become jobs, predictions are of the kind that was measured, and bad rows are errors.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "score/published_report.h"
#include "score/published_score.h"
#include "simulate.h"
#include "step/train.h"

namespace plimsoll::published_test {
namespace {

namespace fs = std::filesystem;

nlohmann::json row() {
  return nlohmann::json::parse(R"({"id":"r1","family":"f","confidence":0.8,
    "model":{"name":"openai-community/gpt2","arch":"decoder_transformer","config":{"num_layers":2,"hidden_size":64,"num_heads":4,
      "ffn_size":256,"vocab_size":500,"position_rows":128,"ffn_kind":"gelu_tanh","hidden_dropout":0.1}},
    "train":{"trainable":"full","batch_per_gpu":2,"seq_len":64,"image_size":null,"grad_accum":1,"grad_clip":null,
      "precision":{"weights":"bf16","compute":"bf16"},"optimizer":{"name":"adamw","foreach":true},"checkpointing":"none",
      "attention":"sdpa","compile":false,"loss":"ce","lora":null,"quantization":null,"extra":null},
    "parallel":{"world":1},"gpu":{"name":"A100-80GB"},"software":{"framework":"x","torch":"2.4.1"},
    "measured":{"bytes":50000000,"kind":"allocated_peak"}})");
}

class Published : public ::testing::Test {
 protected:
  void SetUp() override { path_ = (fs::temp_directory_path() / ("plimsoll_published_" + std::to_string(::getpid()) + ".jsonl")).string(); }
  void TearDown() override { fs::remove(path_); }
  std::vector<PublishedRow> read(const std::string& text) {
    std::ofstream(path_) << text << "\n";
    return read_published_rows(path_);
  }
  PublishedScore score(const nlohmann::json& j) { return score_published(read(j.dump()).at(0)); }
  std::string path_;
};

TEST_F(Published, ARowBecomesTheJobItDescribes) {
  const Job job = read(row().dump()).at(0).job;
  EXPECT_EQ(job.family, "gpt2");
  EXPECT_EQ(job.batch, 2);
  EXPECT_EQ(job.precision, Precision::bf16);
  EXPECT_EQ(job.platform.torch, (Version{2, 4}));
  EXPECT_EQ(job.config.size({"n_embd"}, 0), 64);
}

// The last size of the rows' list is the output's.
TEST_F(Published, ARowOfAPlainNetworkHasTheParametersItStates) {
  nlohmann::json j = row();
  j["model"] = nlohmann::json::parse(R"({"name":"GPUMemNet MLP input:30_output:5","arch":"mlp","config":{"input_size":30,
    "output_size":5,"linear_sizes":[20,10,5],"activation":"swish","batch_norm":true,"dropout":0.4,"final_softmax":true}})");
  j["train"]["seq_len"] = nullptr;
  j["measured"]["kind"] = "device_used";
  const PublishedRow r = read(j.dump()).at(0);
  ASSERT_EQ(r.unsupported, "");
  EXPECT_EQ(r.job.config.size({"output_size"}, 0), 5);
  EXPECT_EQ(r.job.config.find({"linear_sizes"})->size(), 2U);
  EXPECT_EQ(score_published(r).unsupported, "");
}

TEST_F(Published, SeveralProcessesWithoutShardingAreDistributedDataParallel) {
  nlohmann::json j = row();
  j["parallel"] = {{"world", 8}, {"ddp", true}, {"zero_stage", nullptr}, {"fsdp", nullptr}, {"tp", 1}, {"pp", 1}};
  const PublishedRow r = read(j.dump()).at(0);
  ASSERT_EQ(r.unsupported, "");
  EXPECT_EQ(r.job.parallel.ddp->world, 8);
  j["parallel"]["zero_stage"] = 3;
  EXPECT_EQ(read(j.dump()).at(0).unsupported, "parallel: zero_stage");
  j["parallel"]["zero_stage"] = 0;
  j["software"]["framework"] = "Megatron-LM";
  j["train"]["precision"]["weights"] = j["train"]["precision"]["compute"] = "bf16";
  const PublishedRow megatron = read(j.dump()).at(0);
  ASSERT_EQ(megatron.unsupported, "");
  EXPECT_EQ(megatron.job.family, "megatron");
  EXPECT_EQ(megatron.job.program.megatron->data(), 8);
}

TEST_F(Published, EachKindIsPredictedByItsOwnNumber) {
  nlohmann::json j = row();
  std::map<std::string, int64_t> by_kind;
  for (const char* kind : {"static_allocated", "allocated_peak", "reserved_peak", "device_used"}) {
    j["measured"]["kind"] = kind;
    const PublishedScore s = score(j);
    ASSERT_EQ(s.unsupported, "") << kind;
    by_kind[kind] = s.predicted.bytes.count;
    EXPECT_LE(s.predicted.low.count, s.predicted.bytes.count);
    EXPECT_GE(s.predicted.high.count, s.predicted.bytes.count);
  }
  EXPECT_LT(by_kind["static_allocated"], by_kind["allocated_peak"]);
  EXPECT_LT(by_kind["allocated_peak"], by_kind["reserved_peak"]);
  EXPECT_LT(by_kind["reserved_peak"], by_kind["device_used"]);
}

TEST_F(Published, WhatCannotBeExpressedIsSaidAndNotPredicted) {
  for (const auto& [pointer, value, word] :
       std::vector<std::tuple<const char*, nlohmann::json, const char*>>{{"/parallel", {{"world", 8}, {"tp", 2}}, "parallel"},
                                                                         {"/train/checkpointing", "selective_op", "checkpointing"},
                                                                         {"/train/optimizer/state_bits", 8, "8-bit"},
                                                                         {"/train/precision/weights", "int2", "precision"},
                                                                         {"/model/name", "a thing", "model"}}) {
    nlohmann::json j = row();
    j[nlohmann::json::json_pointer(pointer)] = value;
    const PublishedScore s = score(j);
    EXPECT_NE(s.unsupported.find(word), std::string::npos) << s.unsupported;
  }
}

// torch.compile is an interval from the fused run to the eager one.
TEST_F(Published, ACompiledRunIsPredictedBetweenTheEagerOneAndLess) {
  nlohmann::json j = row();
  const PublishedScore eager = score(j);
  j["train"]["compile"] = "model";
  const PublishedScore compiled = score(j);
  ASSERT_EQ(compiled.unsupported, "");
  EXPECT_LE(compiled.predicted.bytes.count, eager.predicted.bytes.count);
  EXPECT_LE(compiled.predicted.low.count, eager.predicted.low.count);
}

// The tables of litgpt state the number of trained parameters: queries and values of Llama 2 7B at rank 8.
TEST_F(Published, ARowOfLitgptHasItsOwnAdapters) {
  nlohmann::json j = row();
  j["software"]["framework"] = "litgpt";
  j["software"]["commit"] = "litgpt@8641822";
  j["model"] = nlohmann::json::parse(R"({"name":"meta-llama/Llama-2-7b-hf","arch":"decoder_transformer","config":{"num_layers":32,
    "hidden_size":4096,"num_heads":32,"num_kv_heads":32,"head_dim":128,"ffn_size":11008,"ffn_kind":"swiglu","vocab_size":32000,"norm":"rmsnorm",
    "norms_per_layer":2,"rotary_pct":1.0,"parallel_residual":false}})");
  j["train"]["trainable"] = "lora";
  j["train"]["lora"] = {{"method", "lora"}, {"rank", 8}, {"targets", {"attn.query", "attn.value"}}, {"dropout", 0.05}};
  const PublishedRow r = read(j.dump()).at(0);
  ASSERT_EQ(r.unsupported, "");
  const Simulation run = simulate(r.job);
  EXPECT_EQ(run.trainable, 4194304);
  EXPECT_EQ(run.parameters, 6738415616 + 4194304);
}

TEST_F(Published, MalformedRowsAreErrorsThatNameTheLine) {
  for (const char* text : {"{", "[]", R"({"id":"x"})", R"({"id":"x","family":"f","measured":{"bytes":"many","kind":"allocated_peak"}})"})
    EXPECT_THROW(read(text), Error) << text;
  nlohmann::json j = row();
  j["measured"]["bytes"] = 0;
  EXPECT_THROW(read(j.dump()), Error);
  j = row();
  j["measured"]["kind"] = "allocated";
  EXPECT_THROW(read(j.dump()), Error);
  j = row();
  j["train"]["batch_per_gpu"] = -3;
  EXPECT_NE(read(j.dump()).at(0).unsupported, "");
}

TEST_F(Published, SummariesCountMissesAgainstTheSharesAndLeaveThemOutOfTheMedian) {
  std::vector<PublishedScore> scores(4);
  for (PublishedScore& s : scores) s.measured = 100;
  scores[0].predicted = {{102}, {95}, {110}};
  scores[1].predicted = {{92}, {90}, {95}};
  scores[2].predicted = {{100}, {100}, {100}};
  scores[3].unsupported = "something";
  const PublishedSummary sum = summarise("x", scores);
  EXPECT_EQ(sum.rows, 4);
  EXPECT_EQ(sum.predicted, 3);
  EXPECT_DOUBLE_EQ(sum.median, 0.02);
  EXPECT_DOUBLE_EQ(sum.within_5, 0.5);
  EXPECT_DOUBLE_EQ(sum.within_10, 0.75);
  EXPECT_DOUBLE_EQ(sum.below, 1.0 / 3);
  EXPECT_DOUBLE_EQ(sum.above_high, 1.0 / 3);
  EXPECT_DOUBLE_EQ(sum.inside, 2.0 / 3);
}

}  // namespace
}  // namespace plimsoll::published_test
