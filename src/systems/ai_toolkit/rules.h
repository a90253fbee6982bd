// What the AI Toolkit's guided set-up computes, formula by formula (smartDefaults.ts of pull requests 511 and 513 to ostris/ai-toolkit),
// in doubles and in the order of its operations, as JavaScript does: to set beside an executed answer, not to rely on. Its GB are not said
// to be 10^9 or 2^30. What its document says instead is in ai_toolkit_document.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace plimsoll::ai_toolkit {

// The file's versions. The document was written with v3.
enum class Version : uint8_t { v1, v2, v3, v4, v5, v6 };
const char* commit_of(Version v);
Version parse_version(const std::string& text);  // "v3" or its commit

enum class GpuType : uint8_t { nvidia, amd, unified_memory, cpu_only };
enum class StorageType : uint8_t { hdd, ssd, nvme };
enum class TrainingType : uint8_t { person, style, object, concept_, other };
enum class Priority : uint8_t { quality, speed, memory_efficiency };
enum class Experience : uint8_t { beginner, intermediate, advanced };
enum class TargetType : uint8_t { lora, lokr, full };
enum class Quantization : uint8_t { none, eight_bit, four_bit };

// Names as in its TypeScript; parsing throws an Error that lists them.
const char* to_string(Version v);
const char* to_string(GpuType t);
const char* to_string(StorageType t);
const char* to_string(TrainingType t);
const char* to_string(Priority p);
const char* to_string(Experience e);
const char* to_string(TargetType t);
const char* to_string(Quantization q);
GpuType parse_gpu_type(const std::string& text);
StorageType parse_storage_type(const std::string& text);
TrainingType parse_training_type(const std::string& text);
Priority parse_priority(const std::string& text);
Experience parse_experience(const std::string& text);
TargetType parse_target_type(const std::string& text);
Quantization parse_quantization(const std::string& text);

struct SystemProfile {
  GpuType gpu = GpuType::nvidia;
  double vram_gb = 24;        // of unified systems: the whole pool, as its profiler writes it
  bool unified = false;       // isUnifiedMemory
  double total_ram = 64;      // GB
  double available_ram = 64;  // GB
  double unified_memory = 0;  // GB; 0: not known, total_ram is taken
  StorageType storage = StorageType::ssd;
  double cores = 8;

  double pool() const { return unified_memory != 0 ? unified_memory : total_ram; }
};

struct UserIntent {
  TrainingType training = TrainingType::other;
  Priority priority = Priority::quality;
  Experience experience = Experience::intermediate;
};

struct BatchConfig {
  int64_t batch_size = 1;
  bool auto_scale_batch_size = true;
  int64_t min_batch_size = 1;
  int64_t max_batch_size = 1;
  int64_t batch_size_warmup_steps = 100;
  bool operator==(const BatchConfig&) const = default;
};

// How a batch for unified memory comes about; also the document's calculation has this form.
struct Budget {
  double total = 0;
  double weights = 0, optimizer = 0, ema = 0, preservation = 0, workers = 0, system = 0;
  double reserved = 0;   // their sum
  double available = 0;  // 90 % of what is left
  double per_sample = 0;
  double divided = 0;  // floor(available / per sample)
};

struct CacheConfig {
  bool cache_latents = false;
  bool cache_latents_to_disk = false;
  double cache_gb = 0;
  double ram_limit_gb = 0;  // what it may be at most in memory; not used for unified memory
};

struct WorkerConfig {
  int64_t num_workers = 0;
  bool persistent_workers = false;
};

struct LoraRank {
  int64_t rank = 0, alpha = 0;
};

struct LrScheduler {
  std::string name;
  int64_t num_cycles = 0;  // 0: not set
  int64_t warmup_steps = 0;
  double min_lr_ratio = 0;
};

struct CfgTraining {
  bool do_cfg = false;
  double cfg_scale = 1.0;
};

struct NoiseOffset {
  double noise_offset = 0;
  std::optional<double> min_snr_gamma;
};

struct TimestepRange {
  int64_t min_denoising_steps = 0, max_denoising_steps = 999;
};

struct Augmentations {
  bool flip_x = false, flip_y = false, random_crop = false, random_scale = false;
};

struct LoggingDefaults {
  bool use_wandb = false;
  int64_t log_every = 100;
  bool verbose = false;
};

struct SampleDefaults {
  std::string sampler;
  int64_t sample_steps = 20;
  double guidance_scale = 7.0;
  int64_t seed = 42;
};

struct RegularizationMemoryCost {  // GB
  double ema = 0;
  double diff_output_preservation = 0;
  double gradient_checkpointing_savings = 0;  // below 0
  double ema_of_full_model = 0;               // worked out by the code, and used by nothing
};

struct TrainingTime {
  double step_seconds = 0;
  double total_minutes = 0;
};

struct AdvisorMessage {
  const char* type;  // info, tip, warning
  std::string about;
  std::string message;  // what it comes to, in other words than the toolkit's
};

// Its two tables of a model's memory in GB. An architecture that is in neither has 24, or 10.
double batch_model_gb(const std::string& arch);     // of calculateBatchDefaults
double estimate_model_gb(const std::string& arch);  // of estimateVRAMUsage, half of it
std::vector<std::string> architectures();

BatchConfig calculate_batch_defaults(Version v, const SystemProfile& profile, double resolution, const UserIntent& intent,
                                     const std::string& arch, double num_workers);
// The steps of the former for unified memory, from v3 on.
Budget batch_budget(const SystemProfile& profile, double resolution, const std::string& arch, double num_workers);

struct VramQuestion {
  std::string arch = "flux";
  double resolution = 1024;
  double batch_size = 1;
  Quantization quantization = Quantization::none;
  bool gradient_checkpointing = false;
  // from v3 on; what the UI never passes
  bool unified = false;
  double num_workers = 4;
  bool ema = false;
  bool diff_output_preservation = false;
};
double estimate_vram_usage(Version v, const VramQuestion& q);  // GB

RegularizationMemoryCost calculate_regularization_memory_cost(const std::string& arch, bool ema, bool diff_output_preservation,
                                                              bool gradient_checkpointing);
CacheConfig calculate_caching_strategy(const SystemProfile& profile, double images);
int64_t calculate_prefetching(const SystemProfile& profile, const UserIntent& intent);
WorkerConfig calculate_workers(Version v, const SystemProfile& profile);
double calculate_learning_rate(const UserIntent& intent, TargetType target);
int64_t calculate_steps(double images, const UserIntent& intent);
LoraRank calculate_lora_rank(const UserIntent& intent, double images);
bool calculate_low_vram(const SystemProfile& profile);                        // from v4 on
LrScheduler calculate_lr_scheduler(const UserIntent& intent, int64_t steps);  // this and what follows: from v5 on
std::string calculate_noise_scheduler(const UserIntent& intent, const std::string& arch);
std::string calculate_loss_target(const UserIntent& intent, const std::string& arch);
CfgTraining calculate_cfg_training(const UserIntent& intent);
NoiseOffset calculate_noise_offset(const UserIntent& intent);
TimestepRange calculate_timestep_range(const UserIntent& intent);
Augmentations calculate_augmentations(const UserIntent& intent, double images);
LoggingDefaults calculate_logging_defaults(const UserIntent& intent);
SampleDefaults calculate_sample_defaults(const std::string& arch);

TrainingTime estimate_training_time(Version v, double steps, double batch_size, double resolution, const SystemProfile& profile);
double estimate_disk_space(double images, double steps, double save_every, bool cache_to_disk);  // GB
std::vector<AdvisorMessage> handle_unified_memory(Version v, const SystemProfile& profile);

struct AdvancedDefaults {
  LrScheduler lr_scheduler;
  std::string noise_scheduler, loss_target;
  CfgTraining cfg;
  NoiseOffset noise_offset;
  TimestepRange timesteps;
  Augmentations augmentations;
  LoggingDefaults logging;
  SampleDefaults sample;
};

struct SmartDefaults {
  BatchConfig batch;
  double lr = 0;
  int64_t steps = 0;
  int64_t gradient_accumulation_steps = 1;
  std::string optimizer = "adamw8bit";
  std::string dtype;
  bool gradient_checkpointing = false;
  std::optional<bool> low_vram;  // from v4 on
  CacheConfig cache;
  int64_t gpu_prefetch_batches = 0;
  WorkerConfig workers;
  double resolution = 0;
  TargetType network = TargetType::lora;
  LoraRank lora;
  std::optional<AdvancedDefaults> advanced;  // from v5 on
  std::vector<AdvisorMessage> messages;
};
SmartDefaults generate_smart_defaults(Version v, const SystemProfile& profile, const UserIntent& intent, double images, double resolution,
                                      TargetType target, const std::string& arch);

// What its pages add: warnings about the settings in force, and texts of the predictions they show.
std::vector<AdvisorMessage> settings_warnings(const SystemProfile& profile, double images, double resolution, double batch_size,
                                              bool gradient_checkpointing);
// quantize and qtype of a configuration, as the UI passes them on.
Quantization ui_quantization(bool quantize, const std::string& qtype);

struct Prediction {
  std::string estimated_vram, step_time, total_time, disk_space, memory_usage;
};
Prediction performance_prediction(Version v, const SystemProfile& profile, double images, double steps, double save_every,
                                  bool cache_to_disk, const VramQuestion& q);

// JavaScript's toFixed: the exact value, halves away from zero.
std::string to_fixed(double value, int digits);

}  // namespace plimsoll::ai_toolkit
