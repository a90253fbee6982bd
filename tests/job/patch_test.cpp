// Sparse sets of settings: keys that the schema has, one text for equal ones, what merging does.
#include "job/patch.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "job/job.h"

namespace plimsoll::patch_test {
namespace {

TEST(Patch, KeysAreThoseOfTheSchema) {
  EXPECT_THROW((Patch{{"batchh", 4}}), Error);
  const Patch patch{{"batch", 4}};
  EXPECT_THROW(patch.contains("checkpoint"), Error);
  EXPECT_THROW(Patch().set("acumulation", 2), Error);
}

TEST(Patch, EqualOnesHaveOneText) {
  const Patch a{{"seq", 128}, {"batch", 4}};
  Patch b;
  b.set("batch", 2).set("seq", 128).set("batch", 4);
  EXPECT_EQ(a, b);
  EXPECT_EQ(a.text(), R"({"batch":4,"seq":128})");
  EXPECT_EQ(Patch().text(), "{}");
  EXPECT_EQ(Patch::from(a.json()), a);
  const Patch split{{"accumulation", 2}, {"batch", 4}};
  EXPECT_EQ(split.in_order().front().first, "batch") << "as the table of settings has them";
}

TEST(Patch, TheSecondWinsAndKeysOfTheConfigurationAddUp) {
  const Patch both = merged({{"batch", 4}, {"config", {{"n_layer", 2}, {"n_head", 4}}}}, {{"batch", 1}, {"config", {{"n_layer", 3}}}});
  EXPECT_EQ(both.text(), R"({"batch":1,"config":{"n_head":4,"n_layer":3}})");
  const Job job = patched({}, both, "plan");
  EXPECT_EQ(job.batch, 1);
  EXPECT_EQ(job.origin.at("config"), "plan");
}

TEST(Patch, OneComesBeforeTheOtherWhateverTheOrderTheyWereMadeIn) {
  Patch late;
  late.set("seq", 64).set("batch", 4);
  const Patch a{{"batch", 4}, {"seq", 64}}, b{{"batch", 4}, {"seq", 128}}, c{{"batch", 8}};
  EXPECT_FALSE(a < late || late < a);
  EXPECT_TRUE(a < b && b < c && a < c);
  EXPECT_FALSE(b < a || c < b);
  EXPECT_TRUE(Patch() < a);
}

TEST(Patch, ValuesAreAskedForByTheirType) {
  const Patch patch{{"batch", 4}, {"ema_place", "host"}, {"offload_activations", false}, {"clip", nullptr}, {"checkpointing", "every=2"}};
  EXPECT_EQ(patch.integer("batch"), 4);
  EXPECT_EQ(patch.integer("accumulation"), std::nullopt);
  EXPECT_EQ(patch.integer("ema_place"), std::nullopt);
  EXPECT_EQ(patch.text("ema_place"), "host");
  EXPECT_EQ(patch.text("batch"), "");
  EXPECT_TRUE(patch.turns_on("checkpointing"));
  for (const char* off : {"offload_activations", "clip", "compile"}) EXPECT_FALSE(patch.turns_on(off)) << off;
  EXPECT_THROW(patch.integer("batsh"), Error);
}

TEST(Patch, IncludesAnotherWithTheSameValues) {
  const Patch patch{{"batch", 4}, {"precision", "bf16"}, {"seq", 64}};
  EXPECT_TRUE(patch.includes({{"batch", 4}, {"seq", 64}}));
  EXPECT_TRUE(patch.includes({}));
  EXPECT_FALSE(patch.includes({{"batch", 2}}));
  EXPECT_FALSE(patch.includes({{"clip", 1}}));
  EXPECT_EQ(patch.without({"batch", "clip"}), (Patch{{"precision", "bf16"}, {"seq", 64}}));
}

TEST(Patch, KeysOfAMappingAreSetOneByOne) {
  Patch patch{{"fsdp", {{"world", 8}}}};
  patch.set("fsdp", "reshard", false);
  EXPECT_EQ(patch.text(), R"({"fsdp":{"reshard":false,"world":8}})");
}

TEST(Patch, FlagsAreWhatTheCommandLineReads) {
  const nlohmann::json none = nlohmann::json::object();
  EXPECT_EQ((Patch{{"accumulation", 2}, {"batch", 4}}).flags(), "--batch 4 --accumulation 2");
  EXPECT_EQ((Patch{{"checkpointing", "every=2"}}).flags(), "--checkpointing=every=2");
  EXPECT_EQ((Patch{{"checkpointing", true}, {"optimizer", "SGD"}, {"optimizer_args", none}}).flags(), "--checkpointing --optimizer SGD");
  EXPECT_EQ((Patch{{"optimizer_args", {{"fused", true}}}}).flags(), "--optimizer-args fused=true");
  EXPECT_EQ((Patch{{"lora", {{"r", 16}, {"target_modules", {"q_proj", "v_proj"}}}}}).flags(), "--lora r=16,target_modules=q_proj+v_proj");
  EXPECT_EQ((Patch{{"ia3", none}}).flags(), "--ia3 '{}'");
  EXPECT_EQ((Patch{{"config", {{"height", 32}, {"width", 1536}}}}).flags(), "--config height=32 --config width=1536");
  EXPECT_EQ((Patch{{"optimizer_args", {{"foreach", false}, {"fused", true}}}}).flags(),
            "--optimizer-args foreach=false --optimizer-args fused=true");
}

TEST(Patch, ARefusedValueIsAnAnswer) {
  const Outcome<Job> refused = try_patched({}, {{"batch", "many"}}, "plan");
  ASSERT_FALSE(refused);
  EXPECT_NE(std::string(refused.refused->what()).find("many"), std::string::npos);
  const Outcome<Job> taken = try_patched({}, {{"batch", 3}}, "plan");
  ASSERT_TRUE(taken);
  EXPECT_EQ(taken->batch, 3);
}

// As the help says: {} takes all defaults, from a file and from a flag.
TEST(Patch, AMappingWithoutKeysIsTheDefaults) {
  for (const nlohmann::json& all : {nlohmann::json::object(), nlohmann::json("{}"), nlohmann::json(true)})
    EXPECT_TRUE(patched({}, {{"ia3", all}}, "test").tuning.adapter) << all;
}

}  // namespace
}  // namespace plimsoll::patch_test
