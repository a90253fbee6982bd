// Models by their names on the Hub that are no preset: a copy in the local cache, then what the name says, then what to do.
#include "model/hub_cache.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "model/hub_names.h"
#include "support.h"
#include "weights_files.h"

namespace plimsoll::hub_cache_test {
namespace {

constexpr const char* kConfig =
    R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 128,
  "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 100, "max_position_embeddings": 256})";

class HubCache : public testing::Test {
 protected:
  HubCache() { ::setenv("HF_HUB_CACHE", folder_.path().c_str(), 1); }
  ~HubCache() override { ::unsetenv("HF_HUB_CACHE"); }
  TemporaryFolder folder_{"hub"};
};

TEST_F(HubCache, IsTheSnapshotOfTheMainBranch) {
  folder_.write("models--me--Mine/snapshots/aaa1/config.json", "{}");
  folder_.write("models--me--Mine/snapshots/bbb2/config.json", kConfig);
  folder_.write("models--me--Mine/refs/main", "bbb2");
  EXPECT_EQ(in_hub_cache("me/Mine"), folder_.path("models--me--Mine/snapshots/bbb2"));
  const Job job = job_of("me/Mine", {{"batch", 1}});
  EXPECT_EQ(job.family, "llama");
  EXPECT_EQ(job.config.size({"num_hidden_layers"}, 0), 3);
}

TEST_F(HubCache, IsTheNewestSnapshotWithoutABranch) {
  folder_.write("models--me--Mine/snapshots/aaa1/config.json", kConfig);
  EXPECT_EQ(in_hub_cache("me/Mine"), folder_.path("models--me--Mine/snapshots/aaa1"));
}

TEST_F(HubCache, HasNoModelsOfPathsOrStrangers) {
  EXPECT_FALSE(in_hub_cache("me/Other"));
  EXPECT_FALSE(in_hub_cache("../../etc"));
  EXPECT_FALSE(in_hub_cache("gpt2"));
  folder_.write("models--me--Mine/refs/main", "../../elsewhere");
  EXPECT_FALSE(in_hub_cache("me/Mine"));
}

TEST_F(HubCache, KnowsMoreThanTheNameOfAFineTune) {
  folder_.write("models--me--gpt2/snapshots/aaa1/config.json", kConfig);
  EXPECT_EQ(job_of("me/gpt2", {{"batch", 1}}).family, "llama");
}

TEST_F(HubCache, WithoutACopyTheNameIsTakenAndSaidToBe) {
  const Job job = job_of("someone/My-Qwen2.5-7B-SFT-v3", {{"batch", 1}});
  EXPECT_EQ(job.config.source(), "qwen2.5-7b");
  ASSERT_FALSE(job.findings.empty());
  EXPECT_EQ(job.findings[0].effect, Effect::assumed);
  EXPECT_EQ(job.findings[0].what, "taken as qwen2.5-7b by its name");
}

TEST_F(HubCache, OtherwiseItsConfigurationIsAskedFor) {
  const std::string error = error_of([] { job_of("acme/Thinker-9000", {{"batch", 1}}); });
  EXPECT_NE(error.find("https://huggingface.co/acme/Thinker-9000/resolve/main/config.json"), std::string::npos) << error;
}

TEST(PresetInName, IsOfTheSameFamilyAndSize) {
  EXPECT_EQ(preset_in_name("a/Hermes-3-Llama-3.1-8B"), "llama-3.1-8b");
  EXPECT_EQ(preset_in_name("a/Qwen2.5-Coder-7B-Instruct-tuned"), "qwen2.5-7b");
  EXPECT_FALSE(preset_in_name("a/Qwen2.5-VL-7B-Instruct"));
  EXPECT_FALSE(preset_in_name("a/Llama-3.1-8B-Vision"));
  EXPECT_FALSE(preset_in_name("a/something-7b"));
  EXPECT_FALSE(preset_in_name("a/gpt2"));
}

}  // namespace
}  // namespace plimsoll::hub_cache_test
