// The AI Toolkit's rules, as its code computes them and as its document states them.
#include <gtest/gtest.h>

#include <cmath>

#include "support.h"
#include "systems/ai_toolkit/document.h"
#include "systems/ai_toolkit/tuner.h"
#include "util/error.h"

namespace plimsoll::ai_toolkit {
namespace {

SystemProfile card(double vram) {
  SystemProfile p;
  p.vram_gb = vram;
  return p;
}

SystemProfile pool(double total) {
  SystemProfile p;
  p.gpu = GpuType::unified_memory;
  p.unified = true;
  p.unified_memory = p.vram_gb = p.total_ram = total;
  return p;
}

UserIntent wants(Priority priority, TrainingType training = TrainingType::other, Experience experience = Experience::intermediate) {
  return {training, priority, experience};
}

BatchConfig batch_of(Version v, const SystemProfile& p, double resolution, const std::string& arch = "flux", double workers = 0) {
  return calculate_batch_defaults(v, p, resolution, wants(Priority::speed), arch, workers);
}

TEST(AiToolkitBatch, OfCardsByResolution) {
  const double resolutions[] = {512, 768, 1024, 1536, 2048};
  struct Row {
    double vram;
    int64_t initial[5], largest[5];
  };
  const Row rows[] = {{8, {4, 2, 1, 1, 1}, {8, 4, 2, 2, 2}},     {12, {4, 3, 2, 1, 1}, {8, 6, 4, 2, 2}},
                      {16, {5, 4, 2, 1, 1}, {10, 8, 4, 2, 2}},   {24, {8, 6, 4, 2, 2}, {16, 12, 8, 4, 4}},
                      {48, {16, 8, 4, 2, 2}, {32, 16, 8, 4, 4}}, {80, {16, 8, 4, 2, 2}, {32, 16, 8, 4, 4}}};
  for (const Row& row : rows) {
    for (int i = 0; i < 5; ++i) {
      const BatchConfig b = batch_of(Version::v3, card(row.vram), resolutions[i]);
      EXPECT_EQ(b, (BatchConfig{row.initial[i], true, 1, row.largest[i], 100})) << row.vram << " GB, " << resolutions[i] << " px";
    }
  }
}

TEST(AiToolkitBatch, OlderVersionsDivideLessAndTakeSeventyPercentOfAPool) {
  EXPECT_EQ(batch_of(Version::v2, card(16), 1536).batch_size, 2);  // 16 / 8
  EXPECT_EQ(batch_of(Version::v3, card(16), 1536).batch_size, 1);  // 16 / 10
  EXPECT_EQ(batch_of(Version::v1, card(20), 2048).batch_size, 2);
  EXPECT_EQ(batch_of(Version::v3, card(20), 2048).batch_size, 1);
  EXPECT_EQ(batch_of(Version::v2, pool(32), 1024).batch_size, 3);  // floor(22.4 / 6)
  EXPECT_FALSE(calculate_batch_defaults(Version::v1, card(24), 1024, wants(Priority::quality), "flux", 0).auto_scale_batch_size);
  EXPECT_TRUE(calculate_batch_defaults(Version::v1, card(24), 1024, wants(Priority::speed), "flux", 0).auto_scale_batch_size);
  EXPECT_TRUE(calculate_batch_defaults(Version::v2, card(24), 1024, wants(Priority::quality), "flux", 0).auto_scale_batch_size);
}

// 120 GB, Qwen Image at 2048 px with two workers: the document's example, in the code's words.
TEST(AiToolkitBatch, OfTheDocumentsSystem) {
  const Budget b = batch_budget(pool(120), 2048, "qwen_image", 2);
  EXPECT_EQ(b.reserved, 56);  // 28 + 16 + 8 + 4
  EXPECT_DOUBLE_EQ(b.available, 57.6);
  EXPECT_EQ(b.per_sample, 16);
  EXPECT_EQ(b.divided, 3);
  EXPECT_EQ(batch_of(Version::v3, pool(120), 2048, "qwen_image", 2), (BatchConfig{2, true, 1, 4, 100}));
}

TEST(AiToolkitBatch, OfAPoolThatIsTooSmall) {
  EXPECT_EQ(batch_of(Version::v3, pool(36), 512, "flux", 0), (BatchConfig{1, true, 1, 1, 100}));   // nothing is left
  EXPECT_EQ(batch_of(Version::v3, pool(37), 1024, "flux", 0), (BatchConfig{1, true, 1, 2, 100}));  // 0.9 GB, less than a sample
}

TEST(AiToolkitBatch, OfAPoolIsCappedByResolution) {
  for (const auto& [resolution, initial, largest] :
       std::vector<std::tuple<double, int64_t, int64_t>>{{512, 16, 32}, {768, 8, 16}, {1024, 4, 8}, {1536, 4, 8}, {2048, 2, 4}})
    EXPECT_EQ(batch_of(Version::v3, pool(512), resolution, "sd15", 4), (BatchConfig{initial, true, 1, largest, 100})) << resolution;
}

TEST(AiToolkitBatch, OfAnUnknownPoolIsOfTheRam) {
  SystemProfile p = pool(0);
  p.total_ram = 120;
  EXPECT_EQ(batch_budget(p, 1024, "no such model", 0).total, 120);
  EXPECT_EQ(batch_budget(p, 1024, "no such model", 0).weights, 24);
}

TEST(AiToolkitModels, TheTwoTables) {
  const std::vector<std::pair<std::string, double>> table{
      {"sd1", 8},    {"sd15", 8},   {"sd2", 10},    {"sdxl", 14},    {"sd3", 16},     {"flux", 24},     {"flux_kontext", 24},
      {"flex1", 20}, {"flex2", 20}, {"chroma", 20}, {"lumina2", 22}, {"hidream", 24}, {"omnigen2", 24}, {"qwen_image", 28}};
  ASSERT_EQ(architectures().size(), table.size());
  for (const auto& [arch, gb] : table) {
    EXPECT_EQ(batch_model_gb(arch), gb) << arch;
    EXPECT_EQ(estimate_model_gb(arch), gb / 2) << arch;
    EXPECT_EQ(document_weights_gb(arch, Quantization::none), gb) << arch;
  }
  EXPECT_EQ(estimate_model_gb("wan21"), 10);
}

TEST(AiToolkitEstimate, OfACard) {
  VramQuestion q;
  EXPECT_EQ(estimate_vram_usage(Version::v3, q), 16);  // 12 + 4
  EXPECT_EQ(estimate_vram_usage(Version::v1, q), 14);  // 12 + 2
  q.quantization = Quantization::eight_bit;
  EXPECT_EQ(estimate_vram_usage(Version::v3, q), 13);
  q.quantization = Quantization::four_bit;
  EXPECT_EQ(estimate_vram_usage(Version::v3, q), 10);
  q.gradient_checkpointing = true;
  EXPECT_EQ(estimate_vram_usage(Version::v3, q), 12 * 0.5 * 0.7 + 4);
  q.ema = q.diff_output_preservation = true;
  EXPECT_EQ(estimate_vram_usage(Version::v3, q), 12 * 0.5 * 0.7 + 4 + 1 + 3);
  EXPECT_EQ(estimate_vram_usage(Version::v2, q), 12 * 0.5 * 0.7 + 2);  // knows neither
}

TEST(AiToolkitEstimate, OfTheDocumentsSystem) {
  // 14 + 16 + 1 + (28 + 16 + 8)
  EXPECT_EQ(estimate_vram_usage(Version::v3, {"qwen_image", 2048, 1, Quantization::none, false, true, 2, true, false}), 83);
}

TEST(AiToolkitRegularization, CostsInGb) {
  const RegularizationMemoryCost all = calculate_regularization_memory_cost("qwen_image", true, true, true);
  EXPECT_EQ(all.ema, 1);
  EXPECT_EQ(all.diff_output_preservation, 3);
  EXPECT_EQ(all.gradient_checkpointing_savings, -14 * 0.3);
  EXPECT_EQ(all.ema_of_full_model, 14);
  const RegularizationMemoryCost none = calculate_regularization_memory_cost("flux", false, false, false);
  EXPECT_EQ(none.ema + none.diff_output_preservation + none.gradient_checkpointing_savings, 0);
  // left out of that table
  EXPECT_EQ(calculate_regularization_memory_cost("flux_kontext", false, false, true).gradient_checkpointing_savings, -3);
}

TEST(AiToolkitData, CacheGoesToMemoryWhileItIsUnderSeventyPercent) {
  SystemProfile p = card(24);
  p.available_ram = 64;
  EXPECT_TRUE(calculate_caching_strategy(p, 6689).cache_latents);  // 39.19 of 39.2 GB
  EXPECT_TRUE(calculate_caching_strategy(p, 6691).cache_latents_to_disk);
  EXPECT_TRUE(calculate_caching_strategy(pool(16), 1e6).cache_latents);
}

TEST(AiToolkitData, PrefetchedBatches) {
  SystemProfile p = card(24);
  const StorageType kinds[] = {StorageType::hdd, StorageType::ssd, StorageType::nvme};
  const int64_t quality[] = {3, 2, 1}, speed[] = {4, 3, 2}, memory[] = {2, 1, 0};
  for (int i = 0; i < 3; ++i) {
    p.storage = kinds[i];
    EXPECT_EQ(calculate_prefetching(p, wants(Priority::quality)), quality[i]);
    EXPECT_EQ(calculate_prefetching(p, wants(Priority::speed)), speed[i]);
    EXPECT_EQ(calculate_prefetching(p, wants(Priority::memory_efficiency)), memory[i]);
  }
  EXPECT_EQ(calculate_prefetching(pool(64), wants(Priority::speed)), 1);
}

TEST(AiToolkitData, Workers) {
  for (const auto& [total, workers, saved] :
       std::vector<std::tuple<double, int64_t, double>>{{128, 4, 32}, {127, 2, 48}, {64, 2, 48}, {63, 0, 64}, {512, 4, 32}}) {
    EXPECT_EQ(calculate_workers(Version::v3, pool(total)).num_workers, workers) << total;
    EXPECT_EQ(calculate_workers(Version::v3, pool(total)).persistent_workers, workers > 0) << total;
    EXPECT_EQ(document_workers(total), workers) << total;
    EXPECT_EQ(document_workers_saved_gb(total), saved) << total;
  }
  SystemProfile p = card(24);
  p.total_ram = 31, p.cores = 16;
  EXPECT_EQ(calculate_workers(Version::v3, p).num_workers, 3);
  p.total_ram = 256, p.cores = 6;
  EXPECT_EQ(calculate_workers(Version::v3, p).num_workers, 6);
  p.cores = 64;
  EXPECT_EQ(calculate_workers(Version::v3, p).num_workers, 8);
  EXPECT_EQ(calculate_workers(Version::v2, pool(128)).num_workers, 8);  // as on a card, then
}

TEST(AiToolkitTraining, RatesStepsRanks) {
  EXPECT_EQ(calculate_learning_rate(wants(Priority::speed, TrainingType::concept_), TargetType::lokr), 5e-4);
  EXPECT_EQ(calculate_learning_rate(wants(Priority::speed, TrainingType::person), TargetType::lora), 1e-4);
  EXPECT_EQ(calculate_learning_rate(wants(Priority::speed, TrainingType::concept_), TargetType::full), 1e-5);
  EXPECT_EQ(calculate_steps(100, wants(Priority::quality)), 1500);
  EXPECT_EQ(calculate_steps(100, wants(Priority::speed)), 800);
  EXPECT_EQ(calculate_steps(100, wants(Priority::memory_efficiency)), 1000);
  EXPECT_EQ(calculate_steps(3, wants(Priority::quality)), 500);
  EXPECT_EQ(calculate_steps(5000, wants(Priority::quality)), 10000);
  const auto rank = [](Priority p, double images) { return calculate_lora_rank(wants(p), images).rank; };
  EXPECT_EQ(rank(Priority::quality, 49), 16);
  EXPECT_EQ(rank(Priority::quality, 50), 32);
  EXPECT_EQ(rank(Priority::quality, 200), 64);
  EXPECT_EQ(rank(Priority::memory_efficiency, 49), 8);
  EXPECT_EQ(rank(Priority::memory_efficiency, 50), 16);
  EXPECT_EQ(rank(Priority::speed, 99), 16);
  EXPECT_EQ(rank(Priority::speed, 100), 32);
  EXPECT_EQ(calculate_lora_rank(wants(Priority::quality), 200).alpha, 64);
}

TEST(AiToolkitTraining, AdvancedOptions) {
  EXPECT_EQ(calculate_lr_scheduler(wants(Priority::speed), 1000).name, "constant");
  const LrScheduler cosine = calculate_lr_scheduler(wants(Priority::quality), 750);
  EXPECT_EQ(cosine.name, "cosine_with_restarts");
  EXPECT_EQ(cosine.num_cycles, 3);
  EXPECT_EQ(cosine.warmup_steps, 75);
  EXPECT_EQ(cosine.min_lr_ratio, 0.1);
  EXPECT_EQ(calculate_lr_scheduler(wants(Priority::quality), 5000).warmup_steps, 100);
  EXPECT_EQ(calculate_lr_scheduler(wants(Priority::memory_efficiency), 990).name, "linear");
  EXPECT_EQ(calculate_lr_scheduler(wants(Priority::memory_efficiency), 990).warmup_steps, 49);
  EXPECT_EQ(calculate_noise_scheduler(wants(Priority::quality), "flux_kontext"), "euler");
  EXPECT_EQ(calculate_noise_scheduler(wants(Priority::quality), "sd3"), "euler");
  EXPECT_EQ(calculate_noise_scheduler(wants(Priority::quality), "sdxl"), "ddpm");
  EXPECT_EQ(calculate_noise_scheduler(wants(Priority::speed), "sdxl"), "euler");
  EXPECT_EQ(calculate_loss_target(wants(Priority::quality), "flux"), "noise");
  EXPECT_TRUE(calculate_cfg_training(wants(Priority::quality, TrainingType::style, Experience::advanced)).do_cfg);
  EXPECT_EQ(calculate_cfg_training(wants(Priority::quality, TrainingType::style, Experience::advanced)).cfg_scale, 3.0);
  EXPECT_FALSE(calculate_cfg_training(wants(Priority::quality)).do_cfg);
  EXPECT_EQ(calculate_noise_offset(wants(Priority::quality)).noise_offset, 0.05);
  EXPECT_EQ(calculate_noise_offset(wants(Priority::quality)).min_snr_gamma, 5.0);
  EXPECT_FALSE(calculate_noise_offset(wants(Priority::speed)).min_snr_gamma.has_value());
  EXPECT_EQ(calculate_timestep_range(wants(Priority::speed)).max_denoising_steps, 999);
  EXPECT_FALSE(calculate_augmentations(wants(Priority::quality, TrainingType::person), 10).flip_x);
  EXPECT_TRUE(calculate_augmentations(wants(Priority::quality, TrainingType::style), 99).random_crop);
  EXPECT_FALSE(calculate_augmentations(wants(Priority::quality, TrainingType::style), 100).random_crop);
  EXPECT_EQ(calculate_logging_defaults(wants(Priority::quality)).log_every, 50);
  EXPECT_TRUE(calculate_logging_defaults(wants(Priority::speed, TrainingType::style, Experience::advanced)).verbose);
  EXPECT_EQ(calculate_sample_defaults("flux").guidance_scale, 3.5);
  EXPECT_EQ(calculate_sample_defaults("sd3").sample_steps, 28);
  EXPECT_EQ(calculate_sample_defaults("sdxl").sampler, "ddpm");
  EXPECT_TRUE(calculate_low_vram(card(7)));
  EXPECT_FALSE(calculate_low_vram(card(8)));
  EXPECT_FALSE(calculate_low_vram(pool(7)));
}

TEST(AiToolkitTime, FollowsTheVersionsIdeaOfAUnifiedSystem) {
  EXPECT_EQ(estimate_training_time(Version::v3, 1500, 4, 1024, card(24)).step_seconds, 3.2);
  EXPECT_EQ(estimate_training_time(Version::v3, 1500, 4, 1024, card(24)).total_minutes, 80);
  EXPECT_EQ(estimate_training_time(Version::v3, 60, 1, 512, card(16)).step_seconds, 0.25);
  EXPECT_EQ(estimate_training_time(Version::v1, 60, 1, 1024, pool(128)).step_seconds, 1.5);
  EXPECT_EQ(estimate_training_time(Version::v3, 60, 1, 1024, pool(128)).step_seconds, 0.8);
  EXPECT_EQ(estimate_training_time(Version::v6, 60, 1, 1024, pool(128)).step_seconds, 1.5);
}

TEST(AiToolkitTime, AndDisk) {
  EXPECT_EQ(estimate_disk_space(1024, 1001, 500, true), 6 + 1.5);
  EXPECT_EQ(estimate_disk_space(1024, 1000, 500, false), 1);
}

TEST(AiToolkitDefaults, OfACardAndOfAPool) {
  const SmartDefaults small = generate_smart_defaults(Version::v3, card(12), wants(Priority::quality), 30, 1024, TargetType::lora, "sdxl");
  EXPECT_EQ(small.batch.batch_size, 2);
  EXPECT_EQ(small.dtype, "fp16");
  EXPECT_TRUE(small.gradient_checkpointing);
  EXPECT_EQ(small.optimizer, "adamw8bit");
  EXPECT_EQ(small.steps, 500);
  EXPECT_FALSE(small.low_vram.has_value());
  EXPECT_FALSE(small.advanced.has_value());
  EXPECT_TRUE(small.messages.empty());
  const SmartDefaults large = generate_smart_defaults(Version::v6, pool(128), wants(Priority::speed), 200, 1024, TargetType::full, "flux");
  EXPECT_EQ(large.workers.num_workers, 4);
  EXPECT_EQ(large.batch.batch_size, 4);  // (128 - 24 - 32 - 8 - 4) x 0.9 / 4 = 13, capped
  EXPECT_EQ(large.dtype, "bf16");
  EXPECT_EQ(large.lr, 1e-5);
  EXPECT_EQ(large.low_vram, false);
  ASSERT_TRUE(large.advanced.has_value());
  EXPECT_EQ(large.advanced->lr_scheduler.name, "constant");
  EXPECT_EQ(large.messages.size(), 5u);
  EXPECT_EQ(handle_unified_memory(Version::v3, pool(48)).size(), 5u);  // no word about offloading, but that it is little
  EXPECT_EQ(handle_unified_memory(Version::v1, pool(48)).size(), 2u);
  EXPECT_NE(handle_unified_memory(Version::v3, pool(64))[1].message.find("48 GB"), std::string::npos);
}

TEST(AiToolkitDefaults, WarningsAndPredictions) {
  EXPECT_EQ(settings_warnings(card(12), 10, 1024, 2, false).size(), 3u);
  EXPECT_TRUE(settings_warnings(card(16), 20, 1024, 4, false).empty());
  EXPECT_EQ(ui_quantization(true, "qfloat8"), Quantization::eight_bit);
  EXPECT_EQ(ui_quantization(true, "uint4"), Quantization::four_bit);
  EXPECT_EQ(ui_quantization(true, "uint3|some/adapter"), Quantization::four_bit);
  EXPECT_EQ(ui_quantization(true, "uint2"), Quantization::eight_bit);
  EXPECT_EQ(ui_quantization(false, "uint4"), Quantization::none);
  VramQuestion q;
  q.batch_size = 4, q.unified = true, q.ema = true;
  const Prediction p = performance_prediction(Version::v3, card(24), 50, 750, 500, true, q);
  EXPECT_EQ(p.estimated_vram, "28.0 GB (of 24 GB)");  // neither the pool nor EMA
  EXPECT_EQ(p.step_time, "~3.20 seconds");
  EXPECT_EQ(p.total_time, "~40 minutes");
  EXPECT_EQ(p.disk_space, "1.3 GB");
  EXPECT_EQ(p.memory_usage, "~13 GB RAM");
  EXPECT_EQ(performance_prediction(Version::v3, card(24), 500, 7500, 500, true, q).total_time, "~6.7 hours");
}

TEST(AiToolkitNumbers, ToFixedIsJavaScripts) {
  EXPECT_EQ(to_fixed(0.25, 1), "0.3");    // a true half goes up
  EXPECT_EQ(to_fixed(1.005, 2), "1.00");  // below a half in binary
  EXPECT_EQ(to_fixed(9.96, 1), "10.0");
  EXPECT_EQ(to_fixed(12.5, 0), "13");
  EXPECT_EQ(to_fixed(-4.2, 1), "-4.2");
}

TEST(AiToolkitNumbers, WhatIsNoNumberStaysInBounds) {
  EXPECT_EQ(batch_of(Version::v3, card(NAN), 1024).batch_size, 1);
  EXPECT_EQ(batch_of(Version::v3, card(INFINITY), 512).batch_size, 16);
  EXPECT_EQ(batch_of(Version::v3, pool(128), NAN).batch_size, 1);
  SystemProfile p = card(24);
  p.total_ram = NAN;
  EXPECT_EQ(calculate_workers(Version::v3, p).num_workers, 8);
}

TEST(AiToolkitTuner, ShrinksByAQuarterAndGivesUp) {
  EXPECT_EQ(oom_sequence(16, 1), (std::vector<int64_t>{12, 9, 6, 4}));
  EXPECT_EQ(oom_sequence(4, 1), (std::vector<int64_t>{3, 2, 1}));
  EXPECT_EQ(oom_sequence(8, 6), (std::vector<int64_t>{6}));
  EXPECT_TRUE(oom_sequence(1, 1).empty());
}

TEST(AiToolkitTuner, GrowsOnlyAfterAWarmUpThatNothingEnds) {
  BatchSizeTuner t = make_tuner(8, 1, 12, true);
  for (int i = 0; i < 100; ++i) t.handle_success(0.5);
  EXPECT_EQ(t.current, 8);
  t.warmup_complete = true;
  for (int i = 0; i < 100; ++i) t.handle_success(0.5);
  EXPECT_EQ(t.current, 10);
  for (int i = 0; i < 100; ++i) t.handle_success(0.95);
  EXPECT_EQ(t.current, 10);
  for (int i = 0; i < 200; ++i) t.handle_success(0.5);
  EXPECT_EQ(t.current, 12);
}

TEST(AiToolkitTuner, WarmsUpDownwardsAfterAnOom) {
  BatchSizeTuner t = make_tuner(16, 1, 32, true);
  EXPECT_EQ(t.batch_size(10), 16);
  EXPECT_EQ(t.handle_oom().batch_size, 12);
  EXPECT_EQ(t.batch_size(50), 14);  // halfway back from 16 to 12: larger than what just failed
  EXPECT_EQ(t.batch_size(100), 14);
}

TEST(AiToolkitTuner, SearchesByHalves) {
  std::vector<int64_t> tried;
  const auto fits = [&](int64_t n) { return tried.push_back(n), n <= 21; };
  EXPECT_EQ(auto_detect_batch_size(fits), 21);
  EXPECT_EQ(tried, (std::vector<int64_t>{32, 16, 24, 20, 22, 21}));
  EXPECT_EQ(auto_detect_batch_size([](int64_t) { return false; }), 1);
}

TEST(AiToolkitWizard, OfTheGuidesSession) {
  WizardQuestion q;
  q.storage = StorageType::nvme, q.images = 2500, q.epochs = 15, q.level = Level::aggressive, q.cores = 16;
  const WizardAnswer a = config_wizard(q);
  EXPECT_EQ(a.batch, (BatchConfig{4, true, 2, 8, 100}));
  EXPECT_EQ(a.steps, 9375);
  EXPECT_EQ(a.num_workers, 8);
  EXPECT_TRUE(a.cache_latents);
  EXPECT_EQ(a.gpu_prefetch_batches, 2);
  q.level = Level::conservative, q.ram_gb = 30, q.goal = Goal::dreambooth, q.vram_gb = 12, q.resolution = 768;
  const WizardAnswer b = config_wizard(q);
  EXPECT_EQ(b.num_workers, 1);  // int(3 x 0.5)
  EXPECT_EQ(b.batch.batch_size, 3);
  EXPECT_FALSE(b.scales);
  EXPECT_EQ(b.lr, 5e-6);
  EXPECT_TRUE(b.gradient_checkpointing);
  EXPECT_TRUE(b.cache_latents_to_disk);  // 14.6 GB of (30 - 2 - 8) x 0.7
  EXPECT_EQ(b.gpu_prefetch_batches, 0);
}

Question documents_system() {
  Question q;
  q.profile = pool(120);
  q.arch = "qwen_image", q.resolution = 2048, q.num_workers = 2, q.ema = true;
  return q;
}

TEST(AiToolkitDocument, FirstExample) {
  const DocumentAnswer a = document_answer(documents_system());
  ASSERT_TRUE(a.budget.has_value());
  EXPECT_EQ(a.budget->weights, 28);
  EXPECT_EQ(a.budget->optimizer, 56);
  EXPECT_EQ(a.budget->ema, 1);
  EXPECT_EQ(a.budget->workers, 16);
  EXPECT_EQ(a.budget->system, 8);
  EXPECT_EQ(a.budget->reserved, 109);
  EXPECT_DOUBLE_EQ(a.budget->available, 9.9);
  EXPECT_EQ(a.budget->per_sample, 16);
  EXPECT_EQ(a.budget->divided, 0);
  EXPECT_EQ(a.batch_size, 1);
  EXPECT_EQ(a.max_batch_size, 1);
  EXPECT_EQ(a.total, 125);
}

TEST(AiToolkitDocument, SecondExampleAndItsForgottenCap) {
  Question q = documents_system();
  q.quantization = Quantization::eight_bit, q.num_workers = 0;
  const DocumentAnswer a = document_answer(q);
  EXPECT_EQ(a.budget->weights, 14);
  EXPECT_EQ(a.budget->optimizer, 28);
  EXPECT_EQ(a.budget->reserved, 51);
  EXPECT_DOUBLE_EQ(a.budget->available, 62.1);
  EXPECT_EQ(a.budget->divided, 3);
  EXPECT_EQ(a.batch_size, 2);
  q.quantization = Quantization::four_bit;
  EXPECT_EQ(document_answer(q).budget->weights, 7);
}

TEST(AiToolkitDocument, ItsTables) {
  EXPECT_EQ(document_caps(512), (std::pair<int64_t, int64_t>{16, 32}));
  EXPECT_EQ(document_caps(768), (std::pair<int64_t, int64_t>{8, 16}));
  EXPECT_EQ(document_caps(1024), (std::pair<int64_t, int64_t>{4, 8}));
  EXPECT_EQ(document_caps(1536), (std::pair<int64_t, int64_t>{4, 8}));
  EXPECT_EQ(document_caps(1537), (std::pair<int64_t, int64_t>{2, 4}));
  for (const auto& [resolution, gb] : std::vector<std::pair<double, double>>{{512, 1}, {768, 2.25}, {1024, 4}, {1536, 9}, {2048, 16}}) {
    Question q = documents_system();
    q.resolution = resolution;
    EXPECT_EQ(document_answer(q).budget->per_sample, gb);
    EXPECT_EQ(batch_budget(q.profile, resolution, q.arch, 0).per_sample, gb);
  }
  // "saves about 8 GB" of 28; the code's figure is half of it
  EXPECT_DOUBLE_EQ(document_answer(documents_system()).checkpointing_saves, 8.4);
  Question full = documents_system();
  full.target = TargetType::full;
  EXPECT_EQ(document_answer(full).budget->ema, 28);
}

bool mentions(const std::vector<Difference>& list, const std::string& about) {
  return std::any_of(list.begin(), list.end(), [&](const Difference& d) { return d.about == about; });
}

TEST(AiToolkitDifferences, AreNamedWithTheFiguresOfTheQuestion) {
  const std::vector<Difference> all = differences(documents_system());
  ASSERT_FALSE(all.empty());
  EXPECT_EQ(all[0].about, "batch size");
  EXPECT_EQ(all[0].code, "2, at most 4");
  EXPECT_EQ(all[0].document, "1, at most 1");
  EXPECT_NE(all[0].consequence.find("57.6 GB against 9.9 GB"), std::string::npos) << all[0].consequence;
  EXPECT_NE(all[1].code.find("28 GB"), std::string::npos);
  EXPECT_NE(all[2].document.find("56 GB"), std::string::npos);
  EXPECT_TRUE(mentions(all, "EMA"));
  EXPECT_FALSE(mentions(all, "quantised weights"));
  EXPECT_FALSE(mentions(all, "gradient checkpointing"));
  EXPECT_TRUE(mentions(all, "auto_scale_batch_size"));
  for (const Difference& d : all) EXPECT_FALSE(d.code.empty() || d.document.empty() || d.consequence.empty()) << d.about;
}

TEST(AiToolkitDifferences, OnlyThoseThatBearOnTheQuestion) {
  Question q;
  q.quantization = Quantization::eight_bit, q.gradient_checkpointing = true;
  const std::vector<Difference> all = differences(q);
  EXPECT_FALSE(mentions(all, "batch size"));  // the same ladder
  EXPECT_TRUE(mentions(all, "quantised weights"));
  EXPECT_TRUE(mentions(all, "gradient checkpointing"));
  EXPECT_TRUE(mentions(all, "step time on unified memory"));
  q.version = Version::v6, q.arch = "flux_kontext";
  EXPECT_FALSE(mentions(differences(q), "step time on unified memory"));
  EXPECT_TRUE(mentions(differences(q), "flux_kontext"));
}

TEST(AiToolkitAnswer, OfTheCodeForTheDocumentsSystem) {
  const CodeAnswer a = code_answer(documents_system());
  EXPECT_EQ(a.batch.batch_size, 2);
  EXPECT_EQ(a.estimate, 99);  // one sample more than 83
  EXPECT_EQ(a.shown, 46);
  EXPECT_FALSE(a.gradient_checkpointing);
}

TEST(AiToolkitAnswer, RefusesWhatIsNoSize) {
  Question q;
  q.resolution = 0;
  EXPECT_THROW(check(q), Error);
  q.resolution = 1024, q.profile.vram_gb = NAN;
  EXPECT_THROW(check(q), Error);
  q.profile.vram_gb = 24, q.batch_size = 0;
  EXPECT_THROW(check(q), Error);
  q = {}, q.profile = pool(1e300);
  const std::string unified = error_of([&] { check(q); });
  EXPECT_NE(unified.find("--unified"), std::string::npos) << unified;
  EXPECT_EQ(unified.find("--vram"), std::string::npos) << unified;
  EXPECT_THROW(parse_priority("fast"), Error);
  EXPECT_THROW(parse_version("v7"), Error);
  EXPECT_EQ(parse_version("91021332"), Version::v3);
}

TEST(AiToolkitAnswer, RefusesAnArchitectureThatItsRulesDoNotKnow) {
  Question q;
  q.arch = "flux_kontex";
  try {
    check(q);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::usage);
    EXPECT_NE(std::string(e.what()).find("flux_kontex"), std::string::npos) << e.what();
    EXPECT_NE(e.hint().find("the nearest: flux_kontext;"), std::string::npos) << e.hint();
  }
  q.arch = "nope";
  const std::string unlike = error_of([&] { check(q); });
  for (const std::string& arch : architectures()) EXPECT_NE(unlike.find(arch), std::string::npos) << unlike;
  for (const std::string& arch : architectures()) {
    q.arch = arch;
    EXPECT_NO_THROW(check(q)) << arch;
  }
}

}  // namespace
}  // namespace plimsoll::ai_toolkit
