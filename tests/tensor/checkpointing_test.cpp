// Which activations are kept: settings, their errors, and what they save. That the bytes are PyTorch's is in truth_test.cpp
// (tests/truth/checkpointing.jsonl).
#include "job/checkpointing.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "estimate/estimate.h"
#include "simulate.h"
#include "support.h"

namespace plimsoll::checkpointing_test {
namespace {

using Json = nlohmann::json;

Job gpt2(const Json& checkpointing) {
  return job_of("gpt2", {{"batch", 8}, {"seq", 512}, {"optimizer", "SGD"}, {"checkpointing", checkpointing}});
}

int64_t peak(const Job& job) { return estimate(job).peak.count; }

bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

TEST(Checkpointing, IsReadInAllItsForms) {
  EXPECT_FALSE(parse_checkpointing(false).on);
  EXPECT_FALSE(parse_checkpointing("none").on);
  EXPECT_TRUE(parse_checkpointing("full").on);
  EXPECT_EQ(parse_checkpointing("every=2").every, 2);
  const Checkpointing c = parse_checkpointing(Json::parse(R"({"modules": ["mlp", "self_attn"], "reentrant": true})"));
  EXPECT_EQ(c.modules, (std::vector<std::string>{"mlp", "self_attn"}));
  EXPECT_TRUE(c.reentrant);
  EXPECT_EQ(parse_checkpointing("modules=mlp+self_attn").modules, c.modules);
  EXPECT_EQ(parse_checkpointing("save=matmuls").save, matmul_ops());
  for (const Checkpointing& written : {c, parse_checkpointing("every=3"), parse_checkpointing(true), parse_checkpointing(false)})
    EXPECT_EQ(to_json(parse_checkpointing(to_json(written))), to_json(written));
}

TEST(Checkpointing, BadValuesAreNamed) {
  EXPECT_TRUE(has(error_of([] { parse_checkpointing("sometimes"); }), "'sometimes' is not KEY=VALUE"));
  EXPECT_TRUE(has(error_of([] { parse_checkpointing("evry=2"); }), "every"));
  EXPECT_TRUE(has(error_of([] { parse_checkpointing("every=0"); }), "every"));
  EXPECT_TRUE(has(error_of([] { parse_checkpointing(7); }), "7 is not a mapping"));
  EXPECT_TRUE(has(error_of([] { parse_checkpointing("every=2,modules=mlp"); }), "leave one of the two out"));
  EXPECT_TRUE(has(error_of([] { parse_checkpointing("reentrant=true,save=matmuls"); }), "not reentrant"));
  EXPECT_TRUE(has(error_of([] { parse_offload("disk", "offload_activations"); }), "pinned or pageable"));
}

TEST(Checkpointing, ModulesThatAreNotThereAreAnErrorThatListsThoseThatAre) {
  const std::string message = error_of([] { simulate(gpt2({{"modules", {"mpl"}}})); });
  EXPECT_TRUE(has(message, "'mpl'")) << message;
  EXPECT_TRUE(has(message, "transformer.h.mlp")) << message;
  EXPECT_TRUE(has(error_of([] { simulate(gpt2({{"save", {"matrix_product"}}})); }), "addmm"));
  EXPECT_TRUE(has(error_of([] { simulate(job_of("vgg16", {{"checkpointing", true}})); }), "name modules instead"));
}

TEST(Checkpointing, MoreOfItKeepsLess) {
  const int64_t none = peak(gpt2(false)), half = peak(gpt2("every=2")), full = peak(gpt2(true)), saved = peak(gpt2("save=matmuls"));
  EXPECT_LT(full, half);
  EXPECT_LT(half, none);
  EXPECT_LT(full, saved);
  EXPECT_LT(saved, none);
  EXPECT_LT(peak(gpt2("modules=mlp")), none);
  EXPECT_LT(full, peak(gpt2("modules=mlp")));
}

TEST(Checkpointing, NumbersChooseSingleBlocks) {
  const int64_t one = peak(gpt2({{"modules", {"h.3"}}})), two = peak(gpt2({{"modules", {"h.3", "h.4"}}}));
  EXPECT_LT(two, one);
  EXPECT_LT(one, peak(gpt2(false)));
}

TEST(Checkpointing, BlocksOfTorchvisionsNetworks) {
  const Json size{{"batch", 8}, {"seq", 224}, {"optimizer", "SGD"}};
  Json checkpointed = size;
  checkpointed["checkpointing"] = true;
  for (const char* model : {"resnet50", "vit_b_16", "convnext_tiny", "efficientnet_b0"})
    EXPECT_LT(peak(job_of(model, checkpointed)), peak(job_of(model, size))) << model;
}

TEST(Offload, ActivationsAreOnTheHostInstead) {
  const Job here = job_of("gpt2", {{"batch", 8}, {"seq", 512}}),
            there = job_of("gpt2", {{"batch", 8}, {"seq", 512}, {"offload_activations", true}});
  const Estimate e = estimate(there);
  EXPECT_LT(e.peak.count, peak(here));
  EXPECT_GT(e.host_facts.activations.count, peak(here) - e.peak.count);
  EXPECT_EQ(estimate(here).host_facts.activations.count, 0);
}

TEST(Compile, LiesBetweenTheEagerRunAndOneThatKeepsMatrixProducts) {
  const Json size{{"batch", 8}, {"seq", 512}};
  Json compiled = size, fused = size;
  compiled["compile"] = true;
  fused["checkpointing"] = "save=matmuls";
  const DeviceMemory eager = *estimate(job_of("gpt2", size)).memory, low = *estimate(job_of("gpt2", fused)).memory,
                     m = *estimate(job_of("gpt2", compiled)).memory;
  EXPECT_EQ(m.allocated.low.count, low.allocated.low.count);
  EXPECT_EQ(m.allocated.high.count, eager.allocated.high.count);
  EXPECT_NEAR(static_cast<double>(m.allocated.bytes.count), (low.allocated.bytes.count + eager.allocated.bytes.count) / 2.0, 1.0);
  EXPECT_TRUE(has(error_of([] { estimate(job_of("vgg16", {{"compile", true}})); }), "compile is not modelled for vgg16"));
}

}  // namespace
}  // namespace plimsoll::checkpointing_test
