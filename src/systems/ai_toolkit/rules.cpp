#include "systems/ai_toolkit/rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "util/error.h"
#include "util/text.h"

namespace plimsoll::ai_toolkit {

namespace {

constexpr std::array kVersions{"v1", "v2", "v3", "v4", "v5", "v6"};
constexpr std::array kCommits{"f0ef9390", "074feaba", "91021332", "f71ed1e7", "4f3f3a5f", "bcec3b02"};
constexpr std::array kGpuTypes{"nvidia", "amd", "unified_memory", "cpu_only"};
constexpr std::array kStorageTypes{"hdd", "ssd", "nvme"};
constexpr std::array kTrainingTypes{"person", "style", "object", "concept", "other"};
constexpr std::array kPriorities{"quality", "speed", "memory_efficiency"};
constexpr std::array kExperiences{"beginner", "intermediate", "advanced"};
constexpr std::array kTargetTypes{"lora", "lokr", "full"};
constexpr std::array kQuantizations{"none", "8bit", "4bit"};

template <class E, size_t N>
const char* name_of(const std::array<const char*, N>& names, E value) {
  return names[static_cast<size_t>(value)];
}

template <class E, size_t N>
E named(const std::array<const char*, N>& names, const std::string& text, const char* what) {
  for (size_t i = 0; i < N; ++i)
    if (text == names[i]) return static_cast<E>(i);
  throw Error(fmt::format("[ai-toolkit] {} '{}' is not known", what, text), did_you_mean(text, {names.begin(), names.end()}));
}

struct ModelMemory {
  const char* arch;
  double batch, estimate;  // GB, in the table of each function
};
constexpr ModelMemory kModels[] = {{"sd1", 8, 4},        {"sd15", 8, 4},        {"sd2", 10, 5},           {"sdxl", 14, 7},
                                   {"sd3", 16, 8},       {"flux", 24, 12},      {"flux_kontext", 24, 12}, {"flex1", 20, 10},
                                   {"flex2", 20, 10},    {"chroma", 20, 10},    {"lumina2", 22, 11},      {"hidream", 24, 12},
                                   {"omnigen2", 24, 12}, {"qwen_image", 28, 14}};
constexpr double kBatchModelElse = 24, kEstimateModelElse = 10;

const ModelMemory* find_model(const std::string& arch) {
  const auto it = std::find_if(std::begin(kModels), std::end(kModels), [&](const ModelMemory& m) { return arch == m.arch; });
  return it == std::end(kModels) ? nullptr : it;
}

// The regularisation table leaves flux_kontext out.
double regularization_model_gb(const std::string& arch) { return arch == "flux_kontext" ? kEstimateModelElse : estimate_model_gb(arch); }

double megapixels(double resolution) { return (resolution * resolution) / (1024 * 1024); }

// Rows of the two ladders, by the largest resolution they are for.
struct DiscreteStep {
  double resolution, cap, least, divisor, old_divisor, max_cap;
};
constexpr DiscreteStep kDiscrete[] = {
    {512, 16, 4, 3, 3, INFINITY}, {768, 8, 2, 4, 4, 16}, {1024, 4, 1, 6, 6, 8}, {1536, 2, 1, 10, 8, 4}, {INFINITY, 2, 1, 12, 10, 4}};
struct UnifiedStep {
  double resolution, cap, max_cap;
};
constexpr UnifiedStep kUnified[] = {{512, 16, 32}, {768, 8, 16}, {1024, 4, 8}, {1536, 4, 8}, {INFINITY, 2, 4}};

template <class Step, size_t N>
const Step& step_for(const Step (&steps)[N], double resolution) {
  for (const Step& s : steps)
    if (resolution <= s.resolution) return s;
  return steps[N - 1];
}

// In std::max and std::min a constant comes first: what is not a number then never gets through.
void discrete_batch(Version v, double vram_gb, double resolution, BatchConfig& out) {
  const DiscreteStep& s = step_for(kDiscrete, resolution);
  const double divisor = v < Version::v3 ? s.old_divisor : s.divisor;
  const double initial = std::min(s.cap, std::max(s.least, std::floor(vram_gb / divisor)));
  out.batch_size = static_cast<int64_t>(initial);
  out.max_batch_size = static_cast<int64_t>(std::min(s.max_cap, initial * 2));
}

void unified_batch(const Budget& budget, double resolution, BatchConfig& out) {
  if (budget.available <= 0) return;  // 1 and 1
  const UnifiedStep& s = step_for(kUnified, resolution);
  const double initial = std::min(s.cap, std::max(1.0, budget.divided));
  out.batch_size = static_cast<int64_t>(initial);
  out.max_batch_size = static_cast<int64_t>(std::min(s.max_cap, initial * 2));
}

double cache_gb(double images) { return (images * 6) / 1024; }

bool is_flux(const std::string& arch) { return arch == "flux" || arch == "flux_kontext"; }

}  // namespace

const char* commit_of(Version v) { return name_of(kCommits, v); }
const char* to_string(Version v) { return name_of(kVersions, v); }
const char* to_string(GpuType t) { return name_of(kGpuTypes, t); }
const char* to_string(StorageType t) { return name_of(kStorageTypes, t); }
const char* to_string(TrainingType t) { return name_of(kTrainingTypes, t); }
const char* to_string(Priority p) { return name_of(kPriorities, p); }
const char* to_string(Experience e) { return name_of(kExperiences, e); }
const char* to_string(TargetType t) { return name_of(kTargetTypes, t); }
const char* to_string(Quantization q) { return name_of(kQuantizations, q); }

Version parse_version(const std::string& text) {
  for (size_t i = 0; i < kCommits.size(); ++i)
    if (text == kCommits[i]) return static_cast<Version>(i);
  return named<Version>(kVersions, text, "version");
}
GpuType parse_gpu_type(const std::string& text) { return named<GpuType>(kGpuTypes, text, "gpu type"); }
StorageType parse_storage_type(const std::string& text) { return named<StorageType>(kStorageTypes, text, "storage"); }
TrainingType parse_training_type(const std::string& text) { return named<TrainingType>(kTrainingTypes, text, "training type"); }
Priority parse_priority(const std::string& text) { return named<Priority>(kPriorities, text, "priority"); }
Experience parse_experience(const std::string& text) { return named<Experience>(kExperiences, text, "experience"); }
TargetType parse_target_type(const std::string& text) { return named<TargetType>(kTargetTypes, text, "target"); }
Quantization parse_quantization(const std::string& text) { return named<Quantization>(kQuantizations, text, "quantization"); }

double batch_model_gb(const std::string& arch) {
  const ModelMemory* m = find_model(arch);
  return m ? m->batch : kBatchModelElse;
}

double estimate_model_gb(const std::string& arch) {
  const ModelMemory* m = find_model(arch);
  return m ? m->estimate : kEstimateModelElse;
}

std::vector<std::string> architectures() {
  std::vector<std::string> out;
  for (const ModelMemory& m : kModels) out.emplace_back(m.arch);
  return out;
}

Budget batch_budget(const SystemProfile& profile, double resolution, const std::string& arch, double num_workers) {
  Budget b;
  b.total = profile.pool();
  b.weights = batch_model_gb(arch);
  b.workers = num_workers * 8;
  b.system = 8;
  b.optimizer = 4;  // "optimizer and EMA", whatever is trained
  b.reserved = b.weights + b.workers + b.system + b.optimizer;
  b.available = std::max(0.0, b.total - b.reserved) * 0.9;
  b.per_sample = megapixels(resolution) * 4;
  b.divided = std::floor(b.available / b.per_sample);
  return b;
}

BatchConfig calculate_batch_defaults(Version v, const SystemProfile& profile, double resolution, const UserIntent& intent,
                                     const std::string& arch, double num_workers) {
  BatchConfig out;
  if (v < Version::v3)
    discrete_batch(v, profile.unified ? profile.pool() * 0.7 : profile.vram_gb, resolution, out);
  else if (profile.unified)
    unified_batch(batch_budget(profile, resolution, arch, num_workers), resolution, out);
  else
    discrete_batch(v, profile.vram_gb, resolution, out);
  out.auto_scale_batch_size = v > Version::v1 || intent.priority != Priority::quality;
  return out;
}

double estimate_vram_usage(Version v, const VramQuestion& q) {
  double base = estimate_model_gb(q.arch);
  if (q.quantization == Quantization::four_bit) base *= 0.5;
  if (q.quantization == Quantization::eight_bit) base *= 0.75;
  if (q.gradient_checkpointing) base *= 0.7;
  const double batch = q.batch_size * megapixels(q.resolution) * (v < Version::v3 ? 2 : 4);
  double total = base + batch;
  if (v < Version::v3) return total;
  const RegularizationMemoryCost costs =
      calculate_regularization_memory_cost(q.arch, q.ema, q.diff_output_preservation, q.gradient_checkpointing);
  total += costs.ema;
  total += costs.diff_output_preservation;
  if (q.unified) total += base * 2 + q.num_workers * 8 + 8;
  return total;
}

RegularizationMemoryCost calculate_regularization_memory_cost(const std::string& arch, bool ema, bool diff_output_preservation,
                                                              bool gradient_checkpointing) {
  const double weights = regularization_model_gb(arch);
  return {ema ? 1.0 : 0.0, diff_output_preservation ? 3.0 : 0.0, gradient_checkpointing ? -weights * 0.3 : 0.0, weights};
}

CacheConfig calculate_caching_strategy(const SystemProfile& profile, double images) {
  CacheConfig out;
  out.cache_gb = cache_gb(images);
  out.ram_limit_gb = (profile.available_ram - 8) * 0.7;
  out.cache_latents = profile.unified || out.cache_gb < out.ram_limit_gb;
  out.cache_latents_to_disk = !out.cache_latents;
  return out;
}

int64_t calculate_prefetching(const SystemProfile& profile, const UserIntent& intent) {
  if (profile.unified) return 1;
  const int64_t base = profile.storage == StorageType::hdd ? 3 : profile.storage == StorageType::ssd ? 2 : 1;
  if (intent.priority == Priority::speed) return base + 1;
  if (intent.priority == Priority::memory_efficiency) return std::max<int64_t>(0, base - 1);
  return base;
}

WorkerConfig calculate_workers(Version v, const SystemProfile& profile) {
  double workers = 0;
  if (profile.unified && v >= Version::v3)
    workers = profile.pool() >= 128 ? 4 : profile.pool() >= 64 ? 2 : 0;
  else
    workers = std::min({8.0, profile.cores, std::floor(profile.total_ram / 8)});
  return {static_cast<int64_t>(std::max(0.0, workers)), workers > 0};
}

double calculate_learning_rate(const UserIntent& intent, TargetType target) {
  if (target == TargetType::full) return 1e-5;
  return intent.training == TrainingType::concept_ ? 5e-4 : 1e-4;
}

int64_t calculate_steps(double images, const UserIntent& intent) {
  const double factor = intent.priority == Priority::quality ? 15 : intent.priority == Priority::speed ? 8 : 10;
  return static_cast<int64_t>(std::max(500.0, std::min(10000.0, images * factor)));
}

LoraRank calculate_lora_rank(const UserIntent& intent, double images) {
  int64_t rank = images < 100 ? 16 : 32;
  if (intent.priority == Priority::quality) rank = images < 50 ? 16 : images < 200 ? 32 : 64;
  if (intent.priority == Priority::memory_efficiency) rank = images < 50 ? 8 : 16;
  return {rank, rank};
}

bool calculate_low_vram(const SystemProfile& profile) { return !profile.unified && profile.vram_gb < 8; }

LrScheduler calculate_lr_scheduler(const UserIntent& intent, int64_t steps) {
  const double n = static_cast<double>(steps);
  if (intent.priority == Priority::speed) return {"constant"};
  if (intent.priority == Priority::quality)
    return {"cosine_with_restarts", 3, static_cast<int64_t>(std::min(100.0, std::floor(n * 0.1))), 0.1};
  return {"linear", 0, static_cast<int64_t>(std::min(50.0, std::floor(n * 0.05)))};
}

std::string calculate_noise_scheduler(const UserIntent& intent, const std::string& arch) {
  return is_flux(arch) || arch == "sd3" || intent.priority == Priority::speed ? "euler" : "ddpm";
}

std::string calculate_loss_target(const UserIntent&, const std::string&) { return "noise"; }

CfgTraining calculate_cfg_training(const UserIntent& intent) {
  if (intent.priority == Priority::quality && intent.experience == Experience::advanced) return {true, 3.0};
  return {};
}

NoiseOffset calculate_noise_offset(const UserIntent& intent) {
  if (intent.priority == Priority::quality) return {0.05, 5.0};
  return {};
}

TimestepRange calculate_timestep_range(const UserIntent&) { return {}; }

Augmentations calculate_augmentations(const UserIntent& intent, double images) {
  return {intent.training != TrainingType::person, false, intent.priority == Priority::quality && images < 100, false};
}

LoggingDefaults calculate_logging_defaults(const UserIntent& intent) {
  return {false, intent.priority == Priority::quality ? 50 : 100, intent.experience == Experience::advanced};
}

SampleDefaults calculate_sample_defaults(const std::string& arch) {
  if (is_flux(arch)) return {"euler", 20, 3.5, 42};
  if (arch == "sd3") return {"euler", 28, 7.0, 42};
  return {"ddpm", 20, 7.0, 42};
}

// v1 asks for the type apple_silicon, which unified systems had then; v2 renamed the type and left the question as it was, so that
// from v2 to v5 a unified system with a large pool counts as a fast card.
TrainingTime estimate_training_time(Version v, double steps, double batch_size, double resolution, const SystemProfile& profile) {
  TrainingTime out;
  out.step_seconds = megapixels(resolution) * batch_size;
  if (profile.unified && (v == Version::v1 || v == Version::v6))
    out.step_seconds *= 1.5;
  else if (profile.vram_gb >= 24)
    out.step_seconds *= 0.8;
  out.total_minutes = (steps * out.step_seconds) / 60;
  return out;
}

double estimate_disk_space(double images, double steps, double save_every, bool cache_to_disk) {
  return (cache_to_disk ? cache_gb(images) : 0) + std::ceil(steps / save_every) * 0.5;
}

SmartDefaults generate_smart_defaults(Version v, const SystemProfile& profile, const UserIntent& intent, double images, double resolution,
                                      TargetType target, const std::string& arch) {
  SmartDefaults out;
  out.workers = calculate_workers(v, profile);
  out.batch = calculate_batch_defaults(v, profile, resolution, intent, arch, static_cast<double>(out.workers.num_workers));
  out.cache = calculate_caching_strategy(profile, images);
  out.gpu_prefetch_batches = calculate_prefetching(profile, intent);
  out.lr = calculate_learning_rate(intent, target);
  out.steps = calculate_steps(images, intent);
  out.lora = calculate_lora_rank(intent, images);
  out.dtype = profile.vram_gb >= 16 ? "bf16" : "fp16";
  out.gradient_checkpointing = profile.vram_gb < 16;
  out.resolution = resolution;
  out.network = target;
  if (v >= Version::v4) out.low_vram = calculate_low_vram(profile);
  if (v >= Version::v5)
    out.advanced = AdvancedDefaults{calculate_lr_scheduler(intent, out.steps),
                                    calculate_noise_scheduler(intent, arch),
                                    calculate_loss_target(intent, arch),
                                    calculate_cfg_training(intent),
                                    calculate_noise_offset(intent),
                                    calculate_timestep_range(intent),
                                    calculate_augmentations(intent, images),
                                    calculate_logging_defaults(intent),
                                    calculate_sample_defaults(arch)};
  out.messages = handle_unified_memory(v, profile);
  return out;
}

Quantization ui_quantization(bool quantize, const std::string& qtype) {
  if (!quantize) return Quantization::none;
  return qtype.starts_with("uint4") || qtype.starts_with("uint3") ? Quantization::four_bit : Quantization::eight_bit;
}

Prediction performance_prediction(Version v, const SystemProfile& profile, double images, double steps, double save_every,
                                  bool cache_to_disk, const VramQuestion& q) {
  VramQuestion shown = q;  // the five arguments that the UI passes
  shown.unified = shown.ema = shown.diff_output_preservation = false;
  const TrainingTime time = estimate_training_time(v, steps, q.batch_size, q.resolution, profile);
  return {fmt::format("{} GB (of {} GB)", to_fixed(estimate_vram_usage(v, shown), 1), profile.vram_gb),
          fmt::format("~{} seconds", to_fixed(time.step_seconds, 2)),
          time.total_minutes < 60 ? fmt::format("~{} minutes", std::floor(time.total_minutes + 0.5))
                                  : fmt::format("~{} hours", to_fixed(time.total_minutes / 60, 1)),
          fmt::format("{} GB", to_fixed(estimate_disk_space(images, steps, save_every, cache_to_disk), 1)),
          fmt::format("~{} GB RAM", to_fixed(std::min(profile.available_ram, images * 0.1 + 8), 0))};
}

std::string to_fixed(double value, int digits) {
  if (!std::isfinite(value)) return fmt::format("{}", value);
  // a double's decimal expansion ends: all of it, then rounded by hand
  std::string exact = fmt::format("{:.1080f}", std::abs(value));
  const size_t end = exact.find('.') + 1 + static_cast<size_t>(digits);
  const bool up = exact[end] >= '5';
  exact.resize(digits == 0 ? end - 1 : end);
  for (size_t i = exact.size(); up && i-- > 0;) {
    if (exact[i] == '.') continue;
    if (exact[i]++ != '9') break;
    exact[i] = '0';
    if (i == 0) exact.insert(0, "1");
  }
  return (value < 0 ? "-" : "") + exact;
}

}  // namespace plimsoll::ai_toolkit
