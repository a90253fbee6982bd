// Every family is whole: what one forgets to say about it would be missed by nobody else.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "model/decoder/megatron.h"
#include "model/decoder/torchtitan.h"
#include "model/registry.h"
#include "model/resolve.h"

namespace plimsoll::families_test {
namespace {

TEST(Families, HaveANameALibraryAndModelsThatCanBeBuilt) {
  for (const Family* family : model_families()) {
    EXPECT_FALSE(family->name.empty());
    EXPECT_FALSE(family->library.empty()) << family->name;
    ASSERT_FALSE(family->models.empty()) << family->name;
    for (const ModelEntry& model : family->models) {
      EXPECT_TRUE(model.make) << model.name;
      EXPECT_GE(model.default_seq, 0) << model.name;
    }
    if (family->library != "torchvision") {
      EXPECT_EQ(family->models.front().name, family->name);
    }
  }
}

TEST(Families, AreListedOnceByEveryName) {
  std::set<std::string> families, names;
  for (const Family* family : model_families()) EXPECT_TRUE(families.insert(family->name).second) << family->name;
  for (const ModelEntry& model : model_registry()) {
    EXPECT_TRUE(names.insert(model.name).second) << model.name;
    for (const std::string& name : model.classes) EXPECT_TRUE(names.insert(name).second) << name;
  }
}

TEST(Families, AreFoundByTheNameAndTheClassesOfTheirModels) {
  for (const Family* family : model_families()) {
    EXPECT_EQ(find_family(family->name), family);
    for (const ModelEntry& model : family->models) {
      ASSERT_NE(find_model(model.name), nullptr) << model.name;
      EXPECT_EQ(find_model(model.name)->family, family);
      for (const std::string& name : model.classes) EXPECT_EQ(find_model(name), find_model(model.name)) << name;
    }
  }
  EXPECT_EQ(find_family("llama-classifier"), nullptr);
}

TEST(Families, PresetsAreOfTheirOwnModelsAndResolve) {
  std::set<std::string> names;
  size_t count = 0;
  for (const Family* family : model_families()) count += family->presets.size();
  EXPECT_EQ(presets().size(), count);
  for (const Preset& preset : presets()) {
    EXPECT_TRUE(names.insert(preset.name).second) << preset.name;
    EXPECT_TRUE(nlohmann::json::parse(preset.config).is_object()) << preset.name;
    const ModelEntry* model = find_model(preset.family);
    ASSERT_NE(model, nullptr) << preset.name;
    Job job;
    job.model = preset.name;
    resolve_model(job);
    EXPECT_EQ(job.family, preset.family) << preset.name;
    EXPECT_EQ(job.seq, preset.seq ? preset.seq : model->default_seq) << preset.name;
  }
}

// peft/utils/constants.py of PEFT 0.20 names these of the families here.
TEST(Families, HaveTargetsWherePeftHasThem) {
  const std::set<std::string> lora{"bert", "gemma2", "gemma3_text", "gpt2",  "gpt_neox", "llama", "mistral",    "mixtral",
                                   "mt5",  "opt",    "qwen2",       "qwen3", "roberta",  "t5",    "xlm-roberta"};
  for (const Family* family : model_families()) {
    const DefaultTargets& targets = family->adapters;
    EXPECT_EQ(!targets.lora.empty(), lora.contains(family->name)) << family->name;
    EXPECT_EQ(!targets.ia3.empty(), lora.contains(family->name) && family->name != "xlm-roberta") << family->name;
    for (const std::string& name : targets.feedforward)
      EXPECT_NE(std::find(targets.ia3.begin(), targets.ia3.end(), name), targets.ia3.end()) << family->name << " " << name;
  }
}

TEST(Families, SupportWhatFollowsFromWhatTheySupport) {
  for (const Family* family : model_families()) {
    const KernelSupport& kernels = family->kernels;
    if (kernels.liger_layers || kernels.cut_cross_entropy) {
      EXPECT_TRUE(kernels.liger_loss) << family->name;
    }
    if (kernels.liger_loss || family->tensor_plan || family->programs.megatron) {
      EXPECT_EQ(family->models.front().inputs, InputKind::lm) << family->name;
    }
  }
  EXPECT_EQ(torchtitan_families(), (std::vector<std::string>{"llama", "qwen3"}));
  for (const std::string& name : megatron_families()) EXPECT_TRUE(knows_megatron(name)) << name;
  EXPECT_FALSE(knows_megatron("llama-classifier"));
}

}  // namespace
}  // namespace plimsoll::families_test
