// Sparse sets of settings: keys that the schema has, one text for equal ones, what merging does.
#include "job/patch.h"

#include <gtest/gtest.h>

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
  Job job;
  both.apply(job, "plan");
  EXPECT_EQ(job.batch, 1);
  EXPECT_EQ(job.origin.at("config"), "plan");
}

}  // namespace
}  // namespace plimsoll::patch_test
