// Adapters, quantised bases and frozen modules: what they add, what they are called, and what happens to wrong names. That they
// cost the right bytes is checked by the recorded rows of tests/truth.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "allocator/timeline.h"
#include "estimate/estimate.h"
#include "job/job_file.h"
#include "job/settings.h"
#include "model/resolve.h"
#include "nn/lokr.h"
#include "simulate.h"
#include "step/train.h"

namespace plimsoll::adapter_test {
namespace {

constexpr int64_t kWidth = 64, kInner = 96, kLayers = 2, kVocab = 300;
const char* const kTiny =
    "model: llama\n"
    "config: {hidden_size: 64, intermediate_size: 96, num_hidden_layers: 2, num_attention_heads: 4, vocab_size: 300}\n"
    "seq: 16\n"
    "precision: bf16\n";

Job tiny(const std::string& more) {
  Job job;
  read_job_text(job, kTiny + more, "test");
  resolve_model(job);
  return job;
}

Simulation run(const std::string& more) { return simulate(tiny(more)); }
int64_t peak(const std::string& more) { return ideal_timeline(run(more).trace).peak().bytes; }

bool has_scope(const Trace& trace, const std::string& path) {
  for (ScopeId s = 1; s < trace.scopes.size(); ++s)
    if (trace.scope_path(s) == path) return true;
  return false;
}

// Bytes of what is there before the first step, by the module that has it.
int64_t bytes_in(const Trace& trace, const std::string& path) {
  int64_t total = 0;
  for (const StorageRecord& s : trace.storages)
    if (s.phase == Phase::setup && s.born_as == Category::parameter && trace.scope_path(s.scope) == path) total += s.bytes;
  return total;
}

void expect_error(const std::string& more, std::initializer_list<const char*> words) {
  try {
    run(more);
    FAIL() << more << " was accepted";
  } catch (const Error& e) {
    const std::string text = std::string(e.what()) + " " + e.hint();
    for (const char* word : words) EXPECT_NE(text.find(word), std::string::npos) << more << ": no '" << word << "' in: " << text;
  }
}

TEST(Adapters, LoraTrainsTwoSmallMatricesForEveryTarget) {
  const int64_t whole = run("").parameters;
  const Simulation s = run("lora: {r: 4, target_modules: [q_proj, down_proj]}\n");
  const int64_t added = kLayers * 4 * ((kWidth + kWidth) + (kInner + kWidth));
  EXPECT_EQ(s.trainable, added);
  EXPECT_EQ(s.parameters, whole + added);
}

TEST(Adapters, HaveThePeftNamesInTheTree) {
  const Trace trace = run("lora: {r: 4, target_modules: [q_proj]}\n").trace;
  for (const char* part : {"base_layer", "lora_A.default", "lora_B.default"})
    EXPECT_TRUE(has_scope(trace, std::string("model.layers.1.self_attn.q_proj.") + part)) << part;
  EXPECT_EQ(bytes_in(trace, "model.layers.1.self_attn.q_proj.lora_A.default"), 4 * 4 * kWidth);  // fp32
  EXPECT_EQ(bytes_in(run("lora: {r: 4, target_modules: [q_proj], dtype: base}\n").trace, "model.layers.1.self_attn.q_proj.lora_A.default"),
            2 * 4 * kWidth);
}

TEST(Adapters, TargetsAreNamedAsInPeft) {
  const int64_t by_name = run("lora: {r: 4, target_modules: [q_proj, v_proj]}\n").trainable;
  EXPECT_EQ(run("lora: {r: 4}\n").trainable, by_name);  // PEFT's default for llama
  EXPECT_EQ(run("lora: {r: 4, target_modules: '.*\\.(q|v)_proj'}\n").trainable, by_name);
  EXPECT_EQ(run("lora: {r: 4, target_modules: [layers.0.self_attn.q_proj, layers.0.self_attn.v_proj]}\n").trainable, by_name / 2);
  EXPECT_EQ(run("lora: {r: 4, target_modules: [q_proj, k_proj, v_proj], exclude_modules: [k_proj]}\n").trainable, by_name);
  const int64_t all = run("lora: {r: 4, target_modules: all-linear}\n").trainable;
  EXPECT_EQ(all, kLayers * 4 * (4 * 2 * kWidth + 3 * (kWidth + kInner)));  // not the head
}

TEST(Adapters, FlagsAreWrittenShort) {
  Job job;
  apply_setting(job, "lora", "r=16,dropout=0.05,target_modules=q_proj+v_proj", "--lora");
  EXPECT_EQ(job.tuning.adapter->r, 16);
  EXPECT_EQ(job.tuning.adapter->dropout, 0.05);
  EXPECT_EQ(job.tuning.adapter->target_modules.names, (std::vector<std::string>{"q_proj", "v_proj"}));
  apply_setting(job, "quantization", "int8", "--quantization");
  EXPECT_EQ(job.tuning.quantization->bits(), 8);
}

TEST(Adapters, NamesThatNoModuleHasAreErrorsThatNameThoseThereAre) {
  expect_error("lora: {target_modules: [q_prj]}\n",
               {"'q_prj'", "did you mean 'q_proj'? There are: q_proj, k_proj, o_proj, v_proj, up_proj"});
  expect_error("lora: {target_modules: [q_proj, query_key_value]}\n",
               {"no linear layer or embedding is called 'query_key_value'", "v_proj"});
  expect_error("lora: {target_modules: 'x(y|z)'}\n", {"x(y|z)", "q_proj"});
  expect_error("lora: {modules_to_save: [lm_heda]}\n", {"lm_heda", "did you mean 'lm_head'"});
  expect_error("lora: {rank_pattern: {v_prj: 2}}\n", {"'v_prj' matches no layer", "did you mean 'v_proj'"});
  expect_error("frozen: [embed]\n", {"embed", "embed_tokens"});
  expect_error("lora: {}\nquantization: {type: nf4, skip_modules: [fc]}\n", {"'fc'"});
}

TEST(Adapters, WrongSettingsAreErrors) {
  expect_error("lora: {rang: 4}\n", {"'rang' is not known", "known:"});
  expect_error("lora: {r: 0}\n", {"r is 0"});
  expect_error("lora: {r: -4}\n", {"r is -4"});
  expect_error("lora: {rank_pattern: {v_proj: 0}}\n", {"v_proj is 0"});
  expect_error("lora: {rank_pattern: 4}\n", {"rank_pattern 4"});
  expect_error("lora: {dropout: 2}\n", {"dropout 2"});
  expect_error("lora: {target_modules: '('}\n", {"regular expression"});
  expect_error("lora: {target_modules: [1]}\n", {"1"});
  expect_error("lora: {bias: some}\n", {"some"});
  expect_error("lora: {r: 4}\nlokr: {r: 4}\n", {"lokr", "lora"});
  expect_error("quantization: nf5\n", {"nf5", "did you mean 'nf4'"});
  expect_error("lokr: {decompose_factor: 0}\n", {"decompose_factor 0"});
  expect_error("lokr: {target_modules: [q_proj], rank_dropout: 0.1}\n", {"rank_dropout 0.1"});
  expect_error("quantization: nf4\nia3: {}\n", {"quantised"});
}

TEST(Adapters, SomeLayersAreChosenByNumber) {
  const int64_t both = run("lora: {r: 4, target_modules: [q_proj]}\n").trainable;
  EXPECT_EQ(run("lora: {r: 4, target_modules: [q_proj], layers_to_transform: [1]}\n").trainable, both / 2);
  EXPECT_EQ(run("lora: {r: 4, target_modules: [q_proj], layers_to_transform: 0, layers_pattern: layers}\n").trainable, both / 2);
  expect_error("lora: {target_modules: [q_proj], layers_to_transform: [1, 7]}\n", {"layer 7", "layers 0 to 1"});
  expect_error("lora: {target_modules: [q_proj], layers_to_transform: [-1]}\n", {"-1", "count from 0"});
  expect_error("lora: {target_modules: all-linear, layers_to_transform: [0]}\n", {"all-linear", "list the targets"});
  expect_error("lora: {target_modules: [q_proj], layers_pattern: layers}\n", {"'layers'", "numbers"});
  expect_error("lora: {target_modules: [q_proj], layers_to_transform: 0, layers_pattern: h}\n", {"'h'", "leave layers_pattern out"});
}

TEST(Adapters, RanksMayDifferFromLayerToLayer) {
  EXPECT_EQ(run("lora: {r: 4, target_modules: [q_proj], rank_pattern: {layers.1.self_attn.q_proj: 16}}\n").trainable,
            (4 + 16) * (kWidth + kWidth));
  expect_error("lora: {target_modules: [q_proj], rank_pattern: {q_proj: 2, '.*_proj': 4}}\n", {"'.*_proj'", "'q_proj'", "one pattern"});
}

TEST(Adapters, SettingsThatContradictEachOtherAreErrors) {
  expect_error("lora: {}\ntrainable: [lm_head]\n", {"'lm_head'", "lora", "modules_to_save"});
  expect_error("lora: {modules_to_save: [lm_head]}\nfrozen: [lm_head]\n", {"'lm_head' is frozen"});
  expect_error("lora: {target_modules: [lm_head], modules_to_save: [lm_head]}\n", {"'lm_head'", "modules_to_save"});
  expect_error("lora: {target_modules: [q_proj], exclude_modules: [q_proj]}\n", {"'q_proj'", "exclude_modules"});
}

TEST(Adapters, ASavedModuleIsTrainedAsACopyBesideTheOriginal) {
  const Simulation s = run("lora: {r: 4, modules_to_save: [lm_head]}\n");
  EXPECT_EQ(bytes_in(s.trace, "lm_head.original_module"), 2 * kVocab * kWidth);
  EXPECT_EQ(bytes_in(s.trace, "lm_head.modules_to_save.default"), 2 * kVocab * kWidth);
  EXPECT_EQ(s.trainable, run("lora: {r: 4}\n").trainable + kVocab * kWidth);
}

TEST(Adapters, AClassifierHeadIsSavedWithItsTaskType) {
  Job job;
  read_job_text(job, std::string(kTiny) + "lora: {r: 4, task_type: SEQ_CLS}\n", "test");
  job.model = "llama-classifier";
  resolve_model(job);
  EXPECT_EQ(simulate(job).trainable, run("lora: {r: 4}\n").trainable + 2 * kWidth);
}

TEST(Adapters, LokrSplitsWidthsAsPeftDoes) {  // the examples in its documentation
  EXPECT_EQ(factorization(256, -1), (std::pair<int64_t, int64_t>{16, 16}));
  EXPECT_EQ(factorization(128, -1), (std::pair<int64_t, int64_t>{8, 16}));
  EXPECT_EQ(factorization(127, -1), (std::pair<int64_t, int64_t>{1, 127}));
  EXPECT_EQ(factorization(128, 4), (std::pair<int64_t, int64_t>{4, 32}));
}

TEST(Frozen, ModulesGetNoGradientAndNoOptimizerState) {
  const Simulation all = run(""), some = run("frozen: [embed_tokens, layers.0]\n");
  EXPECT_LT(some.trainable, all.trainable);
  EXPECT_EQ(some.parameters, all.parameters);
  EXPECT_EQ(run("trainable: [lm_head]\n").trainable, kVocab * kWidth);
  EXPECT_LT(peak("trainable: [lm_head]\n"), peak("frozen: [embed_tokens]\n"));
}

TEST(Frozen, AModelThatTrainsNothingSaysSo) { expect_error("frozen: [model, lm_head]\n", {"requires a gradient"}); }

TEST(Quantization, APurelyQuantisedModelIsNotTrained) {
  expect_error("quantization: nf4\n", {"nf4 without an adapter", "--lora"});
  expect_error("quantization: int8\nfrozen: [embed_tokens]\n", {"int8 without an adapter"});
}

TEST(Quantization, QuantisedWeightsAreNotTrained) {
  expect_error("quantization: nf4\ntrainable: [q_proj]\n", {"layers.0.self_attn.q_proj", "nf4", "skip_modules"});
  expect_error("quantization: int8\nlora: {modules_to_save: [down_proj]}\n", {"mlp.down_proj", "int8", "skip_modules"});
  EXPECT_EQ(run("quantization: nf4\ntrainable: [lm_head]\n").trainable, kVocab * kWidth);
  EXPECT_GT(run("quantization: {type: int8, skip_modules: [down_proj]}\nlora: {modules_to_save: [down_proj]}\n").trainable,
            kLayers * kWidth * kInner);
}

TEST(Quantization, WhatDoesNotExistBesideItIsNamed) {
  const std::string qlora = "quantization: nf4\nlora: {}\n";
  expect_error(qlora + "optimizer: AdamW4bit\n", {"AdamW4bit", "did you mean 'AdamW"});
  expect_error(qlora + "offload: cpu\n", {"offload"});
}

TEST(Quantization, FourBitsAreTwoWeightsAByteAndScales) {
  const std::string lora = "lora: {r: 4, target_modules: [q_proj]}\n", layer = "model.layers.0.self_attn.k_proj";
  const int64_t n = kWidth * kWidth, blocks = n / 64;
  EXPECT_EQ(bytes_in(run(lora + "quantization: nf4\n").trace, layer), n / 2 + 4 * blocks + 16 * 4);
  // uint8 scales, one fp32 for 256 of them, their mean, and the tables of 16 and 256 values; the first layer also made the table
  // that all layers share.
  EXPECT_EQ(bytes_in(run(lora + "quantization: {type: nf4, double_quant: true}\n").trace, layer),
            n / 2 + blocks + 4 + 4 + 16 * 4 + 256 * 4);
  EXPECT_EQ(bytes_in(run(lora + "quantization: int8\n").trace, layer), n + 4 * kWidth);
}

TEST(Quantization, CountsWeightsNotBytes) {
  const std::string lora = "lora: {r: 4}\n";
  EXPECT_EQ(run(lora + "quantization: nf4\n").parameters, run(lora).parameters);
}

TEST(Quantization, PreparingPutsTheRestIntoFp32) {
  const std::string nf4 = "lora: {r: 4}\nquantization: {type: nf4, prepare: ";
  EXPECT_EQ(bytes_in(run(nf4 + "true}\n").trace, "lm_head"), 4 * kVocab * kWidth);
  EXPECT_EQ(bytes_in(run(nf4 + "false}\n").trace, "lm_head"), 2 * kVocab * kWidth);
}

TEST(Quantization, OutliersCostMore) {
  const std::string int8 = "lora: {r: 4}\nquantization: {type: int8, outliers: ";
  EXPECT_GT(peak(int8 + "8}\n"), peak(int8 + "0}\n"));
}

}  // namespace
}  // namespace plimsoll::adapter_test
