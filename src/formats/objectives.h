// Training that is more than the model's own loss on one batch: preference losses, reinforcement learning, distillation. What of it is not
// simulated becomes a missing part, so that no verdict is given on the rest alone.
#pragma once

#include <string>

#include "formats/reader.h"

namespace plimsoll {

struct Objective {
  std::string name;       // "dpo", "grpo", ... as trainers call it; empty: the model's own loss
  bool adapter = false;   // the reference is the base without it
  bool reference = true;  // false: there is none, or its results were computed before
  bool reward = false;    // a reward model is loaded
  bool vllm = false;      // answers come from vLLM on the same device
};

// Names like "trl.scripts.dpo", "run_dpo.py" and "DPO"; empty when it is none of these.
std::string objective_in(const std::string& name);

void note_objective(Reader& r, const Objective& objective);

}  // namespace plimsoll
