// The AI Toolkit's batch-size tuner (toolkit/batch_size_tuner.py), whose value its trainer prints and never uses, and the
// question-and-answer script that came before its guided set-up (toolkit/config_wizard.py, 518e1b9c).
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "systems/ai_toolkit/rules.h"

namespace plimsoll::ai_toolkit {

struct BatchSizeTuner {
  int64_t initial = 4, least = 1, most = 32;
  bool auto_scale = false;
  int64_t warmup_steps = 100;
  double safety_margin = 0.9, oom_backoff_factor = 0.75;

  int64_t current = initial, stable = initial;
  int64_t oom_count = 0, successful_steps = 0;
  bool warmup_complete = false;  // nothing but its tests ever sets it: batches never grow

  int64_t batch_size(int64_t step);  // warms up from initial to stable, which are equal until an OOM
  struct Reduced {
    int64_t batch_size;
    bool abort;
  };
  Reduced handle_oom();
  void handle_success(double memory_used);  // as a share of the device's
};

BatchSizeTuner make_tuner(int64_t initial, int64_t least, int64_t most, bool auto_scale);

// The sizes it goes through when every step runs out of memory, until it gives up.
std::vector<int64_t> oom_sequence(int64_t initial, int64_t least);

// auto_detect_batch_size: the largest size that `fits` by halving; called by nothing.
int64_t auto_detect_batch_size(const std::function<bool(int64_t)>& fits, int64_t least = 1, int64_t most = 64);

enum class Goal : uint8_t { lora, full, dreambooth, textual_inversion, other };
enum class Level : uint8_t { conservative, balanced, aggressive };

struct WizardQuestion {
  int64_t vram_gb = 24, ram_gb = 64, cores = 8;
  StorageType storage = StorageType::ssd;
  int64_t images = 1000, resolution = 1024, epochs = 10;
  Goal goal = Goal::lora;
  Level level = Level::balanced;
};

struct WizardAnswer {
  BatchConfig batch;  // beyond batch_size: only when it is aggressive
  bool scales = false;
  int64_t steps = 0;
  double lr = 0;
  int64_t num_workers = 0;
  bool persistent_workers = false;
  bool cache_latents = false, cache_latents_to_disk = false;
  int64_t gpu_prefetch_batches = 0;
  const char* dtype = "bf16";
  bool gradient_checkpointing = false;
};

WizardAnswer config_wizard(const WizardQuestion& q);

}  // namespace plimsoll::ai_toolkit
