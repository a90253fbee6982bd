#include "systems/ai_toolkit/tuner.h"

#include <algorithm>

namespace plimsoll::ai_toolkit {

namespace {

constexpr int64_t kMostOoms = 5;
constexpr int64_t kStepsBetweenGrowths = 100;

int64_t truncated(double x) { return static_cast<int64_t>(x); }  // Python's int()

}  // namespace

BatchSizeTuner make_tuner(int64_t initial, int64_t least, int64_t most, bool auto_scale) {
  BatchSizeTuner t;
  t.initial = t.current = t.stable = initial;
  t.least = std::max<int64_t>(1, least);
  t.most = most;
  t.auto_scale = auto_scale;
  return t;
}

int64_t BatchSizeTuner::batch_size(int64_t step) {
  if (auto_scale && step < warmup_steps && !warmup_complete) {
    const double progress = static_cast<double>(step) / static_cast<double>(warmup_steps);
    const int64_t warm = truncated(static_cast<double>(initial) + static_cast<double>(stable - initial) * progress);
    current = std::max(least, std::min(warm, most));
  }
  return current;
}

BatchSizeTuner::Reduced BatchSizeTuner::handle_oom() {
  ++oom_count;
  const int64_t smaller = std::max(least, truncated(static_cast<double>(current) * oom_backoff_factor));
  if (smaller == current || oom_count >= kMostOoms) return {smaller, true};
  current = stable = smaller;
  return {smaller, false};
}

void BatchSizeTuner::handle_success(double memory_used) {
  ++successful_steps;
  oom_count = std::max<int64_t>(0, oom_count - 1);
  if (!warmup_complete || !auto_scale || successful_steps % kStepsBetweenGrowths != 0) return;
  if (current >= most || memory_used >= safety_margin) return;
  current = std::min(most, current + std::max<int64_t>(1, truncated(static_cast<double>(current) * 0.25)));
}

std::vector<int64_t> oom_sequence(int64_t initial, int64_t least) {
  BatchSizeTuner tuner = make_tuner(initial, least, initial, true);
  std::vector<int64_t> sizes;
  for (BatchSizeTuner::Reduced r = tuner.handle_oom(); !r.abort; r = tuner.handle_oom()) sizes.push_back(r.batch_size);
  return sizes;
}

int64_t auto_detect_batch_size(const std::function<bool(int64_t)>& fits, int64_t least, int64_t most) {
  int64_t best = least, low = least, high = most;
  while (low <= high) {
    const int64_t middle = low + (high - low) / 2;
    if (fits(middle)) {
      best = middle;
      low = middle + 1;
    } else {
      high = middle - 1;
    }
  }
  return best;
}

WizardAnswer config_wizard(const WizardQuestion& q) {
  const bool aggressive = q.level == Level::aggressive;
  WizardAnswer a;
  int64_t& batch = a.batch.batch_size;
  batch = q.resolution <= 512   ? std::clamp<int64_t>(q.vram_gb / 3, 4, 16)
          : q.resolution <= 768 ? std::clamp<int64_t>(q.vram_gb / 4, 2, 8)
                                : std::clamp<int64_t>(q.vram_gb / 6, 1, 4);
  a.steps = q.images * q.epochs / batch;
  a.lr = q.goal == Goal::lora ? 1e-4 : q.goal == Goal::dreambooth ? 5e-6 : q.goal == Goal::textual_inversion ? 5e-3 : 1e-5;
  const double factor = q.level == Level::conservative ? 0.5 : aggressive ? 1.5 : 1.0;
  const int64_t by_ram = std::max<int64_t>(1, truncated(static_cast<double>(q.ram_gb / 8) * factor));
  a.num_workers = std::min({by_ram, q.cores, int64_t{8}});
  a.persistent_workers = q.epochs > 1;
  const double cache_gb = static_cast<double>(q.images * 6) / 1024;
  a.cache_latents = cache_gb < static_cast<double>(q.ram_gb - a.num_workers * 2 - 8) * 0.7;
  a.cache_latents_to_disk = !a.cache_latents;
  if (aggressive || q.storage == StorageType::hdd)
    a.gpu_prefetch_batches = q.storage == StorageType::hdd ? 3 : 2;
  else
    a.gpu_prefetch_batches = q.level == Level::balanced ? 1 : 0;
  a.scales = a.batch.auto_scale_batch_size = aggressive;
  a.batch.max_batch_size = batch;
  if (aggressive) {
    a.batch.min_batch_size = std::max<int64_t>(1, batch / 2);
    a.batch.max_batch_size = batch * 2;
  }
  a.dtype = q.vram_gb >= 16 ? "bf16" : "fp16";
  a.gradient_checkpointing = q.vram_gb < 16;
  return a;
}

}  // namespace plimsoll::ai_toolkit
