// Documents for people: the memory report in its languages, and what explain says of a job.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "report/explain_report.h"
#include "shown.h"
#include "support.h"
#include "systems/seed_report.h"

namespace plimsoll::report_test {
namespace {

Job small_job() {
  return job_of("gpt2", {{"config", {{"n_layer", 2}, {"n_embd", 64}, {"n_head", 4}, {"vocab_size", 1000}}}, {"batch", 4}, {"seq", 64}});
}

TargetDevice device_of(int64_t bytes) {
  TargetDevice d;
  d.spec.vendor = "NVIDIA";
  d.name = "small";
  d.capacity = Capacity{{bytes}, {bytes}, {bytes}, "as given"};
  return d;
}

bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(SeedReport, HasEveryPartAndTheBytesOfTheEstimate) {
  const Job job = small_job();
  const SeedReport r = make_seed_report(job, device_of(int64_t{8} << 30), {});
  const std::string text = doc::to_markdown(seed_report_document(r, Language::english));
  for (const char* part : {"# Memory of gpt2", "## Settings", "### 1. Model parameters", "### 2. Gradients", "Optimizer states",
                           "Input tensors", "Activations of the forward pass", "## Total", "## Bottlenecks, ranked", "## Recommendations",
                           "## Comparison", "batch 2", "yes (small)", "(4, 64) int64", "## How sure"})
    EXPECT_TRUE(holds(text, part)) << part << "\n" << text;
  EXPECT_TRUE(holds(text, with_commas(r.estimate.peak.count) + " B"));
  EXPECT_TRUE(holds(text, "**" + with_commas(r.estimate.parameters) + "**"));
  int64_t sum = 0;
  for (const TreeNode& n : r.estimate.by_category.children) sum += n.bytes.count;
  EXPECT_EQ(sum, r.estimate.peak.count);
}

TEST(SeedReport, VerdictsFollowTheDevice) {
  const Job job = small_job();
  EXPECT_TRUE(
      holds(doc::to_markdown(seed_report_document(make_seed_report(job, device_of(1 << 20), {}), Language::english)), "no (small)"));
  Job smaller = job;
  smaller.batch = 1;
  const SeedReport r = make_seed_report(job, {}, {{"other.yaml", smaller}});
  ASSERT_EQ(r.comparison.size(), 2u);
  EXPECT_EQ(r.comparison[1].name, "other.yaml");
  EXPECT_LT(r.comparison[1].estimate.peak, r.comparison[0].estimate.peak);
}

TEST(SeedReport, PeaksOfCategoriesAreNeverBelowWhatIsAliveAtThePeak) {
  const Estimate e = estimate(small_job(), SIZE_MAX);
  for (const TreeNode& n : e.by_category.children) {
    for (int c = 0; c < kCategories; ++c) {
      if (n.name != category_name(static_cast<Category>(c))) continue;
      EXPECT_GE(e.category_peaks[static_cast<size_t>(c)], n.bytes) << n.name;
    }
  }
}

TEST(SeedReport, SpeaksVietnamese) {
  const std::string text =
      doc::to_markdown(seed_report_document(make_seed_report(small_job(), device_of(int64_t{8} << 30), {}), Language::vietnamese));
  for (const char* part : {"# Bộ nhớ của gpt2", "## Thiết lập", "Tham số mô hình", "## Khuyến nghị", "## So sánh", "✅ Có"})
    EXPECT_TRUE(holds(text, part)) << part;
  for (const char* part : {"## Settings", "Recommendations", "Bottlenecks", "checkpoint every block"})
    EXPECT_FALSE(holds(text, part)) << part;
}

TEST(Phrases, EveryLeverIsTranslated) {
  Job trained = small_job(), eager = small_job(), adapted = small_job();
  apply_setting(eager, "ema", true, "test");
  apply_setting(eager, "attention", "eager", "test");
  apply_setting(eager, "precision", "fp32", "test");
  apply_setting(eager, "ddp", {{"world", 2}}, "test");
  apply_setting(eager, "checkpointing", "every=2", "test");
  apply_setting(adapted, "lora", {{"r", 4}}, "test");
  for (const Job* job : {&trained, &eager, &adapted})
    for (const Lever& l : levers_for(*job)) {
      EXPECT_TRUE(has_translation(l.name)) << l.name;
      EXPECT_TRUE(has_translation(l.cost)) << l.cost;
    }
}

TEST(Phrases, NumbersStandForThemselves) {
  EXPECT_EQ(Phrases(Language::vietnamese)("checkpoint every 3nd block"), "checkpoint mỗi block thứ 3");
  EXPECT_EQ(Phrases(Language::vietnamese)("LoRA of rank 1,024"), "LoRA hạng 1,024");
  EXPECT_EQ(Phrases(Language::vietnamese)("no such phrase 7"), "no such phrase 7");
  EXPECT_EQ(Phrases(Language::english)("batch 4"), "batch 4");
  EXPECT_THROW(parse_language("fr"), Error);
}

TEST(Explain, SaysWhereEachValueComesFrom) {
  Job job = small_job();
  job.findings.push_back({Effect::none, "vram.max_seq_len = 512", "config.json", "the model's length is used", "train.py"});
  const auto log = std::make_shared<ConfigLog>();
  job.config.watch(log);
  const Estimate e = estimate(job, 0);
  const Explanation x = explain_job(e, log->lookups(), "GPT2Config");
  const std::string text = shown(explain_document(x));
  for (const char* part : {"n_layer", "default of GPT2Config", "vram.max_seq_len = 512", "no effect", "the model's length is used"})
    EXPECT_TRUE(holds(text, part)) << part << "\n" << text;
  const nlohmann::ordered_json j = explain_json(x);
  EXPECT_EQ(j["findings"][0]["effect"], "no effect");
  EXPECT_EQ(j["peak_bytes"], x.estimate.peak.count);
  bool batch = false;
  for (const auto& row : j["settings"]) batch = batch || (row["name"] == "batch" && row["value"] == "4" && row["origin"] == "test");
  EXPECT_TRUE(batch) << j["settings"];
}

}  // namespace
}  // namespace plimsoll::report_test
