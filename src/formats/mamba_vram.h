// Presets, VRAMOptimizer and estimator of infrabrew/mamba-recursive-model at 04bc129 (configs/model_configs.py, utils/vram_optimizer.py).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace plimsoll {

struct MambaShape {
  int64_t d_model = 768, n_layers = 12, d_state = 16, expand_factor = 2, vocab_size = 50257;
};

struct MambaPreset {
  const char* name;
  MambaShape shape;
  int64_t max_seq_len;
  int64_t recursion;  // max_recursion_depth; 0: not a hybrid
  bool choice;        // --model_size offers it
};
const MambaPreset* mamba_preset(const std::string& name);  // null: none

// What the optimizer decides. Its length has no effect.
struct MambaVram {
  int64_t batch = 1, accumulation = 1, seq = 0;
  double usable_gb = 0;
  bool checkpointing = true;
};
MambaVram mamba_optimize(const MambaShape& shape, double vram_gb, double margin_mb);

// "16gb" and "20.5" are numbers; "16gb_medium" is none.
std::optional<double> mamba_vram_number(const std::string& vram);

// Its estimates, in MiB.
double mamba_model_mb(const MambaShape& shape);
double mamba_batch_mb(const MambaShape& shape, int64_t batch, int64_t seq);

}  // namespace plimsoll
