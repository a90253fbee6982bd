// A model that is named alone, with an adapter: the rest of the recipe is what people run, said as assumed, and every flag wins over it.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "api/request.h"
#include "estimate/estimate.h"
#include "job/settings.h"
#include "plan/levers.h"
#include "report/estimate_screen.h"
#include "support.h"
#include "weights_files.h"

namespace plimsoll::bare_model_test {
namespace {

using Json = nlohmann::json;

Job job_named(const std::string& run, const Json& settings = Json::object()) {
  JobRequest request;
  request.run = {run};
  for (const auto& [key, value] : settings.items()) request.set(key, value, "--" + key);
  return request.job();
}

TEST(BareModel, WithAnAdapterIsWhatPeftsUsersRun) {
  const Job job = job_named("llama-3.1-8b", {{"lora", "r=8"}});
  EXPECT_EQ(job.precision, Precision::bf16);
  EXPECT_TRUE(job.autocast);
  EXPECT_TRUE(job.checkpointing.on);
  EXPECT_EQ(job.seq, 2048);
  EXPECT_EQ(assumed_text(job), "assumed: 2048 tokens, bf16 weights, bf16 autocast, activation checkpointing");
}

TEST(BareModel, WithoutAnAdapterIsAsItWas) {
  const Job job = job_named("llama-3.1-8b");
  EXPECT_EQ(job.precision, Precision::amp);
  EXPECT_FALSE(job.checkpointing.on);
  EXPECT_EQ(job.seq, 8192);
  EXPECT_EQ(assumed_text(job), "");
}

TEST(BareModel, TakesEveryFlagBeforeWhatIsAssumed) {
  const Json given{{"lora", "r=8"}, {"precision", "fp32"}, {"autocast", false}, {"checkpointing", false}, {"seq", 512}};
  const Job job = job_named("llama-3.1-8b", given);
  EXPECT_EQ(job.precision, Precision::fp32);
  EXPECT_FALSE(job.autocast);
  EXPECT_FALSE(job.checkpointing.on);
  EXPECT_EQ(job.seq, 512);
  EXPECT_EQ(assumed_text(job), "");
  const Job plain = job_named("llama-3.1-8b", {{"lora", true}, {"autocast", false}});
  EXPECT_EQ(plain.precision, Precision::bf16);
  EXPECT_FALSE(plain.autocast);
}

TEST(BareModel, IsNotLongerThanItsPositions) {
  EXPECT_EQ(job_named("gpt2", {{"lora", true}}).seq, 1024);
  EXPECT_EQ(job_named("bert-base", {{"lora", "target_modules=query"}}).seq, 512);
}

TEST(BareModel, HasTheTypeOfItsConfiguration) {
  const TemporaryFolder folder("dtype");
  const std::string sizes = R"("model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 128,
                               "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100, "max_position_embeddings": 256)";
  const Job fp32 = job_named(folder.write("config.json", "{" + sizes + R"(, "dtype": "float32"})"), {{"lora", true}});
  EXPECT_EQ(fp32.precision, Precision::amp);
  EXPECT_EQ(fp32.seq, 256);
  EXPECT_EQ(job_named(folder.write("b/config.json", "{" + sizes + R"(, "torch_dtype": "bfloat16"})"), {{"lora", true}}).precision,
            Precision::bf16);
}

TEST(BareModel, IsNotWhatAJobFileNames) {
  const TemporaryFolder folder("job");
  const std::string file = folder.write("job.yaml", "model: llama-3.1-8b\nlora: {r: 8}\n");
  JobRequest named;
  named.job_file = file;
  for (const Job& job : {job_named(file), named.job()}) {
    EXPECT_EQ(job.precision, Precision::amp);
    EXPECT_FALSE(job.checkpointing.on);
    EXPECT_EQ(job.seq, 8192);
  }
}

TEST(BareModel, IsWrittenAndReadBackAsTheSameJob) {
  const Job job = job_named("llama-3.1-8b", {{"qlora", true}});
  const TemporaryFolder folder("back");
  JobRequest request;
  request.job_file = folder.write("job.json", job_json(job).dump());
  EXPECT_EQ(job_json(request.job()).dump(), job_json(job).dump());
}

TEST(QLora, IsLoraOnAnNf4BaseAndFillsInWhatIsNotSaid) {
  const Job job = job_named("llama-3.1-8b", {{"qlora", true}});
  ASSERT_TRUE(job.tuning.adapter && job.tuning.quantization);
  EXPECT_EQ(job.tuning.adapter->r, 16);
  EXPECT_TRUE(job.tuning.adapter->target_modules.all_linear);
  EXPECT_EQ(job.tuning.quantization->type, "nf4");
  EXPECT_EQ(job.tuning.quantization->compute_dtype, "bf16");
  EXPECT_TRUE(job.autocast && job.checkpointing.on);
  const Job said = job_named("llama-3.1-8b", {{"qlora", true}, {"lora", "r=64"}, {"quantization", "fp4"}});
  EXPECT_EQ(said.tuning.adapter->r, 64);
  EXPECT_EQ(said.tuning.quantization->type, "fp4");
}

// A row of --what-if is what its flags are, typed beside the model.
TEST(WhatIfRow, TypedAsItsFlagsHasTheRowsNumber) {
  const Json small{{"config", {{"num_hidden_layers", 2}}}};
  const Job bare = job_named("llama-3.2-1b", small);
  int compared = 0;
  for (const Lever& lever : levers_for(bare)) {
    if (lever.knob != "adapter") continue;
    Job turned = bare;
    lever.settings.apply(turned, "what-if");
    Json typed = small;
    typed.update(lever.settings.json());
    EXPECT_EQ(estimate(job_named("llama-3.2-1b", typed)).peak.count, estimate(turned).peak.count) << lever.settings.flags();
    ++compared;
  }
  EXPECT_EQ(compared, 2);
}

TEST(WhatIfRow, SaysThatNf4TakesLess) {
  for (const Json& recipe :
       {Json{{"lora", true}}, Json{{"lora", true}, {"precision", "bf16"}, {"autocast", false}, {"checkpointing", false}}}) {
    const Job lora = job_named("llama-3.2-1b", recipe);
    const std::vector<Lever> levers = levers_for(lora);
    const auto nf4 = std::find_if(levers.begin(), levers.end(), [](const Lever& l) { return l.knob == "quantization"; });
    ASSERT_NE(nf4, levers.end());
    Job turned = lora;
    nf4->settings.apply(turned, "what-if");
    EXPECT_LT(estimate(turned).peak.count, estimate(lora).peak.count) << recipe;
  }
}

TEST(Lora, NamesItsKeysWhenOneIsUnknown) {
  const std::string error = error_of([] { job_named("gpt2", {{"lora", "width=16"}}); });
  EXPECT_NE(error.find("'width' is not known"), std::string::npos) << error;
  EXPECT_NE(error.find(", r, "), std::string::npos) << error;
  EXPECT_EQ(job_named("gpt2", {{"lora", "rank=4"}}).tuning.adapter->r, 4);
}

TEST(Like, TakesTheTrainersDefaultsAndFlagsWin) {
  const Job trl = job_named("llama-3.1-8b", {{"like", "trl"}, {"lora", true}});
  EXPECT_EQ(trl.batch, 8);
  EXPECT_EQ(trl.seq, 1024);
  EXPECT_EQ(trl.precision, Precision::amp);
  EXPECT_TRUE(trl.checkpointing.on);
  EXPECT_EQ(trl.tuning.adapter->r, 16);
  EXPECT_NE(assumed_text(trl).find("the defaults of TRL"), std::string::npos) << assumed_text(trl);
  const Job axolotl = job_named("llama-3.1-8b", {{"like", "axolotl"}, {"qlora", true}, {"lora", "r=64"}, {"seq", 4096}});
  EXPECT_EQ(axolotl.seq, 4096);
  EXPECT_EQ(axolotl.tuning.adapter->r, 64);
  EXPECT_TRUE(axolotl.tuning.adapter->target_modules.all_linear);
  EXPECT_TRUE(axolotl.tuning.quantization->double_quant);
  EXPECT_FALSE(axolotl.checkpointing.on);
}

TEST(Like, IsForAModelAlone) {
  const TemporaryFolder folder("like");
  const std::string file = folder.write("job.yaml", "model: gpt2\n");
  EXPECT_NE(error_of([&] { job_named(file, {{"like", "trl"}}); }).find("says its own recipe"), std::string::npos);
  EXPECT_NE(error_of([] { job_named("gpt2", {{"like", "axolotel"}}); }).find("axolotl"), std::string::npos);
}

TEST(Like, EveryTrainerIsAJob) {
  for (const char* trainer : {"trainer", "trl", "axolotl", "llama-factory", "unsloth", "torchtune"})
    for (const char* setting : {"lora", "qlora"}) {
      const Job job = job_named("llama-3.2-1b", {{"like", trainer}, {setting, true}});
      EXPECT_EQ(job.model, "llama-3.2-1b") << trainer;
      EXPECT_TRUE(job.tuning.adapter) << trainer;
      EXPECT_TRUE(job.tuning.quantization || setting == std::string("lora")) << trainer;
    }
  for (const char* trainer : {"kohya", "ai-toolkit"})
    for (const char* model : {"sd-scripts-sdxl", "stabilityai/stable-diffusion-xl-base-1.0", "flux-dev"})
      EXPECT_TRUE(job_named(model, {{"like", trainer}}).tuning.adapter) << trainer << " " << model;
}

// The published command: weights in the checkpoint's type with transformers 5, in fp32 before.
TEST(TrainerCommand, LoadsTheTypeThatItsTransformersLoads) {
  const std::string command =
      "python run_clm.py --model_name_or_path Qwen/Qwen3-8B --bf16 --per_device_train_batch_size 1 --block_size 2048";
  const Job now = job_named(command);
  EXPECT_EQ(now.precision, Precision::bf16);
  EXPECT_TRUE(now.autocast);
  EXPECT_NE(assumed_text(now).find("bf16 weights"), std::string::npos) << assumed_text(now);
  EXPECT_EQ(job_named(command, {{"transformers", "4.57"}}).precision, Precision::amp);
  EXPECT_EQ(job_named(command + " --torch_dtype float32").precision, Precision::amp);
  EXPECT_EQ(job_named(command + " --torch_dtype auto", {{"transformers", "4.57"}}).precision, Precision::bf16);
  EXPECT_EQ(job_named("python run_clm.py --model_name_or_path gpt2 --bf16 --per_device_train_batch_size 1").precision, Precision::amp);
  EXPECT_EQ(
      job_named("python trl/scripts/sft.py --model_name_or_path Qwen/Qwen3-8B --dataset_name x --per_device_train_batch_size 1").precision,
      Precision::amp);
}

}  // namespace
}  // namespace plimsoll::bare_model_test
