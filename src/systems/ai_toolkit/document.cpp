#include "systems/ai_toolkit/document.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "util/error.h"
#include "util/text.h"

namespace plimsoll::ai_toolkit {

namespace {

void check_range(const char* what, double value, double least, double most) {
  if (value >= least && value <= most) return;
  throw Error(fmt::format("[ai-toolkit] {} {} is not between {} and {}", what, value, least, most), "see plimsoll plan --help");
}

double workers_of(const Question& q) {
  return q.num_workers.value_or(static_cast<double>(calculate_workers(q.version, q.profile).num_workers));
}

bool checkpoints(const Question& q) { return q.gradient_checkpointing.value_or(q.profile.vram_gb < 16); }

// Adds up, in the order of the document's listing.
void sum_up(Budget& b) {
  b.reserved = b.weights + b.optimizer + b.ema + b.preservation + b.workers + b.system;
  b.available = std::max(0.0, b.total - b.reserved) * 0.9;
  b.divided = std::floor(b.available / b.per_sample);
}

}  // namespace

void check(const Question& q) {
  const std::vector<std::string> known = architectures();
  if (std::find(known.begin(), known.end(), q.arch) == known.end())
    throw Error(fmt::format("[ai-toolkit] --arch {} is none that its rules know", printable(q.arch, 60)),
                fmt::format("the nearest: {}; known: {}", nearest_first(q.arch, known).front(), join(known, ", ")), ExitCode::usage);
  check_range("--unified", q.profile.unified_memory, 0, 1e6);
  check_range("--ram", q.profile.total_ram, 0, 1e6);
  check_range("--available-ram", q.profile.available_ram, 0, 1e6);
  check_range(q.profile.unified ? "--unified" : "--vram", q.profile.vram_gb, 0, 1e6);
  check_range("--cores", q.profile.cores, 1, 1e6);
  check_range("--resolution", q.resolution, 1, 1e6);
  check_range("--images", q.images, 0, 1e9);
  check_range("--save-every", q.save_every, 1, 1e9);
  if (q.num_workers) check_range("--workers", *q.num_workers, 0, 1e4);
  if (q.batch_size) check_range("--batch", *q.batch_size, 1, 1e6);
}

CodeAnswer code_answer(const Question& q) {
  CodeAnswer a;
  a.defaults = generate_smart_defaults(q.version, q.profile, q.intent, q.images, q.resolution, q.target, q.arch);
  a.num_workers = workers_of(q);
  a.batch = calculate_batch_defaults(q.version, q.profile, q.resolution, q.intent, q.arch, a.num_workers);
  if (q.profile.unified && q.version >= Version::v3) a.budget = batch_budget(q.profile, q.resolution, q.arch, a.num_workers);
  a.batch_size = q.batch_size.value_or(static_cast<double>(a.batch.batch_size));
  a.gradient_checkpointing = checkpoints(q);
  a.vram = {q.arch,
            q.resolution,
            a.batch_size,
            q.quantization,
            a.gradient_checkpointing,
            q.profile.unified,
            a.num_workers,
            q.ema,
            q.diff_output_preservation};
  a.estimate = estimate_vram_usage(q.version, a.vram);
  VramQuestion shown = a.vram;
  shown.unified = shown.ema = shown.diff_output_preservation = false;
  a.shown = estimate_vram_usage(q.version, shown);
  a.regularization = calculate_regularization_memory_cost(q.arch, q.ema, q.diff_output_preservation, a.gradient_checkpointing);
  a.prediction = performance_prediction(q.version, q.profile, q.images, static_cast<double>(a.defaults.steps), q.save_every,
                                        a.defaults.cache.cache_latents_to_disk, a.vram);
  a.warnings = settings_warnings(q.profile, q.images, q.resolution, a.batch_size, a.gradient_checkpointing);
  return a;
}

double document_weights_gb(const std::string& arch, Quantization q) {
  const double gb = batch_model_gb(arch);  // the two tables agree
  return q == Quantization::eight_bit ? gb / 2 : q == Quantization::four_bit ? gb / 4 : gb;
}

std::pair<int64_t, int64_t> document_caps(double resolution) {
  if (resolution <= 512) return {16, 32};
  if (resolution <= 768) return {8, 16};
  if (resolution <= 1536) return {4, 8};
  return {2, 4};
}

int64_t document_workers(double pool_gb) { return pool_gb >= 128 ? 4 : pool_gb >= 64 ? 2 : 0; }

double document_workers_saved_gb(double pool_gb) { return static_cast<double>((8 - document_workers(pool_gb)) * 8); }

DocumentAnswer document_answer(const Question& q) {
  DocumentAnswer a;
  const auto [cap, largest] = document_caps(q.resolution);
  a.checkpointing_saves = 0.3 * document_weights_gb(q.arch, q.quantization);
  if (!q.profile.unified) {
    // the same ladder as the code's, of v3, under the caps of its table
    const BatchConfig batch = calculate_batch_defaults(Version::v3, q.profile, q.resolution, q.intent, q.arch, 0);
    a.batch_size = batch.batch_size;
    a.max_batch_size = std::min(largest, 2 * batch.batch_size);
    a.num_workers = static_cast<int64_t>(workers_of(q));
    return a;
  }
  a.num_workers = q.num_workers ? static_cast<int64_t>(*q.num_workers) : document_workers(q.profile.pool());
  Budget b;
  b.total = q.profile.pool();
  b.weights = document_weights_gb(q.arch, q.quantization);
  b.optimizer = 2 * b.weights;
  b.ema = !q.ema ? 0 : q.target == TargetType::full ? b.weights : 1;
  b.preservation = q.diff_output_preservation ? 3 : 0;
  b.workers = static_cast<double>(a.num_workers) * 8;
  b.system = 8;
  b.per_sample = (q.resolution * q.resolution) / (1024 * 1024) * 4;
  sum_up(b);
  a.budget = b;
  a.batch_size = static_cast<int64_t>(std::min(static_cast<double>(cap), std::max(1.0, b.divided)));
  a.max_batch_size = b.divided >= 1 ? std::min(largest, 2 * a.batch_size) : 1;
  a.total_for = q.batch_size.value_or(static_cast<double>(a.batch_size));
  a.total = b.reserved + a.total_for * b.per_sample;
  return a;
}

}  // namespace plimsoll::ai_toolkit
