// How weights are updated beside the plain optimizer step: in backward, through master copies, with a moving average; and what each
// optimizer costs.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <fstream>
#include <sstream>

#include "allocator/timeline.h"
#include "estimate/estimate.h"
#include "report/optimizer_report.h"
#include "shown.h"
#include "simulate.h"
#include "step/train.h"
#include "support.h"

namespace plimsoll::update_test {
namespace {

using Json = nlohmann::json;

Job tiny(const std::vector<std::pair<std::string, Json>>& settings = {}) {
  Job job;
  apply_setting(job, "model", "gpt2", "test");
  apply_setting(job, "config", {{"n_embd", 64}, {"n_layer", 2}, {"n_head", 4}, {"vocab_size", 300}}, "test");
  for (const auto& [key, value] : settings) apply_setting(job, key, value, "test");
  resolve_model(job);
  job.batch = 2;
  job.seq = 16;
  return job;
}

std::string refusal(const std::vector<std::pair<std::string, Json>>& settings) {
  return error_of([&] { simulate(tiny(settings)); });
}

Bytes alive_at_end(const Job& job, Category category) {
  const Trace trace = simulate(job).trace;
  Bytes total;
  for (const LiveStorage& l : alive_at(trace, static_cast<int64_t>(trace.events.size()) - 1))
    if (l.category == category) total += Bytes{trace.storages[l.id].bytes};
  return total;
}

int64_t peak_in(const Job& job, Phase phase) {
  const Timeline t = ideal_timeline(simulate(job).trace);
  return t.steps[1].by_phase[static_cast<size_t>(phase)];
}

bool mentions(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// ---- in backward --------------------------------------------------------------------------------------------------------

TEST(OptimizerInBackward, KeepsTheSameStatesWithoutAllGradientsAtOnce) {
  const Job plain = tiny({{"precision", "fp32"}}), fused = tiny({{"precision", "fp32"}, {"optimizer_in_backward", true}});
  EXPECT_EQ(alive_at_end(plain, Category::optimizer_state), alive_at_end(fused, Category::optimizer_state));
  const int64_t weights = simulate(plain).parameters * 4;
  EXPECT_GT(peak_in(plain, Phase::optimizer), 5 * weights);  // weights, gradients, two states, roots
  EXPECT_LT(peak_in(fused, Phase::optimizer), peak_in(plain, Phase::optimizer) - weights);
}

TEST(OptimizerInBackward, SaysWhyItCannotBeCombined) {
  const auto with = [](const std::string& key, const Json& value) { return refusal({{"optimizer_in_backward", true}, {key, value}}); };
  EXPECT_TRUE(mentions(with("clip", 1.0), "clip 1: the norm of all gradients"));
  EXPECT_TRUE(mentions(with("accumulation", 4), "accumulation 4: every backward updates"));
  EXPECT_TRUE(mentions(with("precision", "amp-fp16"), "GradScaler"));
  EXPECT_TRUE(mentions(with("ddp", {{"world", 2}}), "buckets"));
  EXPECT_TRUE(mentions(with("optimizer", "Muon+AdamW"), "recipe of two"));
  EXPECT_EQ(with("precision", "bf16"), "");
}

// ---- master weights -----------------------------------------------------------------------------------------------------

TEST(MasterWeights, AreFp32CopiesWithFp32States) {
  const Job job = tiny({{"precision", "bf16"}, {"master_weights", "fp32"}});
  const int64_t n = simulate(job).parameters;
  EXPECT_EQ(alive_at_end(job, Category::optimizer_state), Bytes{3 * 4 * n});
  EXPECT_EQ(alive_at_end(job, Category::gradient), Bytes{0});
}

TEST(MasterWeights, AnFp32GradientBufferLivesFromTheStartToTheEnd) {
  const Job job = tiny({{"precision", "bf16"}, {"master_weights", "fp32"}, {"gradient_dtype", "fp32"}});
  EXPECT_EQ(alive_at_end(job, Category::gradient), Bytes{4 * simulate(job).parameters});
}

TEST(MasterWeights, NeedHalfPrecisionWeights) {
  EXPECT_TRUE(mentions(refusal({{"precision", "amp"}, {"master_weights", "fp32"}}), "fp32 already"));
  EXPECT_TRUE(mentions(refusal({{"precision", "bf16"}, {"gradient_dtype", "fp32"}}), "without master_weights"));
  EXPECT_TRUE(mentions(refusal({{"precision", "bf16"}, {"master_weights", "fp32"}, {"gradient_dtype", "fp16"}}), "bf16 or fp32"));
  EXPECT_TRUE(mentions(refusal({{"precision", "bf16"}, {"master_weights", "fp32"}, {"zero1", {{"world", 2}}}}), "not simulated"));
  EXPECT_THROW(tiny({{"master_weights", "bf16"}}), Error);
}

// ---- moving averages ----------------------------------------------------------------------------------------------------

TEST(Ema, IsInTheTypeAskedFor) {
  const int64_t n = simulate(tiny()).parameters;
  EXPECT_EQ(alive_at_end(tiny({{"ema", true}}), Category::ema), Bytes{4 * n});
  EXPECT_EQ(alive_at_end(tiny({{"ema_dtype", "bf16"}}), Category::ema), Bytes{2 * n});
  EXPECT_EQ(alive_at_end(tiny({{"precision", "bf16"}, {"ema", true}}), Category::ema), Bytes{2 * n});
  EXPECT_EQ(alive_at_end(tiny({{"precision", "bf16"}, {"ema_dtype", "fp32"}}), Category::ema), Bytes{4 * n});
}

TEST(Ema, OnTheHostComesToTheDeviceToBeUpdated) {
  const Job host = tiny({{"ema_place", "host"}}), device = tiny({{"ema", true}});
  EXPECT_EQ(alive_at_end(host, Category::ema), Bytes{0});
  EXPECT_EQ(peak_in(host, Phase::ema), peak_in(device, Phase::ema));
  EXPECT_EQ(simulate(host).host.ema, Bytes{4 * simulate(host).parameters});
}

TEST(Ema, OfAveragedModelOnTheHostTakesAllWeightsThere) {
  const Simulation s = simulate(tiny({{"ema_place", "host"}, {"ema_update", "averaged-model"}}));
  EXPECT_GE(s.host.ema, Bytes{4 * s.parameters});  // and the buffers
  EXPECT_EQ(s.host.ema_transfer, Bytes{4 * s.parameters});
  const Simulation lerp = simulate(tiny({{"ema_place", "host"}, {"ema_update", "lerp"}}));
  EXPECT_EQ(lerp.host.ema_transfer, Bytes{4 * 1024 * 64});  // the largest parameter: positions
}

TEST(Ema, OnTheHostIsARowOfItsMemory) {
  const Job job = tiny({{"ema_place", "host"}});
  const Estimate e = estimate(job);
  const HostEstimate host = host_memory(job, e.host_facts);
  const auto row = std::find_if(host.steady.begin(), host.steady.end(), [](const HostRow& r) { return r.name == "EMA"; });
  ASSERT_NE(row, host.steady.end());
  EXPECT_EQ(row->size.bytes, e.host_facts.host_ema);
}

TEST(Ema, AveragedModelHasTheTypesOfTheModel) {
  EXPECT_TRUE(mentions(refusal({{"ema_dtype", "fp32"}, {"ema_update", "averaged-model"}}), "AveragedModel copies the model as it is"));
  EXPECT_THROW(tiny({{"ema_update", "swa"}}), Error);
}

TEST(PagedStates, AreInNoCounterAndARangeOfRam) {
  Job job = tiny({{"optimizer", "PagedAdamW32bit"}, {"config", {{"n_embd", 512}}}});
  const Estimate e = estimate(job);
  EXPECT_GT(e.host_facts.managed.count, 0);
  const HostEstimate host = host_memory(job, e.host_facts);
  const auto row = std::find_if(host.steady.begin(), host.steady.end(), [](const HostRow& r) { return r.name == "paged states"; });
  ASSERT_NE(row, host.steady.end());
  EXPECT_EQ(row->size.low, Bytes{0});
  EXPECT_EQ(row->size.high, e.host_facts.managed);
}

// ---- what they cost -----------------------------------------------------------------------------------------------------

const OptimizerEntry& entry(const std::string& name) {
  for (const OptimizerEntry& e : optimizer_registry())
    if (name == e.name) return e;
  throw std::runtime_error(name);
}

void expect_cost(const char* name, const Json& args, CostPrecision precision, double states, double peak, double after) {
  const std::optional<OptimizerCost> c = optimizer_cost(entry(name), args, precision);
  ASSERT_TRUE(c) << name;
  EXPECT_DOUBLE_EQ(c->states, states) << name << args;
  EXPECT_DOUBLE_EQ(c->peak, peak) << name << args;
  EXPECT_DOUBLE_EQ(c->after, after) << name << args;
}

TEST(OptimizerCosts, PureBf16AdamWPeaksAtTenBytesAndKeepsSix) {
  const Json none = Json::object();
  expect_cost("AdamW", none, CostPrecision::bf16, 4, 10, 6);
  expect_cost("AdamW", none, CostPrecision::fp32, 8, 20, 12);
  expect_cost("AdamW", none, CostPrecision::bf16_master, 12, 22, 14);
  expect_cost("SGD", none, CostPrecision::bf16, 0, 4, 2);
  expect_cost("lion_pytorch.Lion", none, CostPrecision::bf16, 2, 10, 4);
}

TEST(OptimizerCosts, RefusalsAreNoCosts) {
  EXPECT_FALSE(optimizer_cost(entry("SOAP"), Json::object(), CostPrecision::bf16));
  EXPECT_FALSE(optimizer_cost(entry("RMSprop"), {{"fused", true}}, CostPrecision::fp32));
}

TEST(OptimizerCosts, TheTableInTheDocumentationIsWhatTheCommandPrints) {
  std::ifstream in(std::string(PLIMSOLL_SOURCE_DIR) + "/docs/optimizers.md");
  std::stringstream text;
  text << in.rdbuf();
  const std::string doc = text.str(), open = "<!-- optimizer bytes -->\n";
  const size_t from = doc.find(open) + open.size();
  EXPECT_EQ(doc.substr(from, doc.find("<!-- end -->", from) - from), doc::to_markdown(optimizer_costs_document(optimizer_cost_table())))
      << "write it anew: plimsoll list optimizer-bytes --markdown";
}

}  // namespace
}  // namespace plimsoll::update_test
