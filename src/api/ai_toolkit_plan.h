// A run as the AI Toolkit's set-up would have it: what its rules and its document answer, and what an execution of the same run gives.
#pragma once

#include <string>

#include "api/request.h"
#include "api/show.h"

namespace plimsoll {

// Sizes of the machine are in GB. -1: as the set-up proposes; 0: not said.
struct AiToolkitRequest {
  std::string version = "v3", arch = "flux", quantization = "none", target = "lora", priority = "quality", training = "other",
              experience = "intermediate", storage = "ssd", gpu = "nvidia";
  double resolution = 1024, vram = 24, unified = 0, ram = 0, available_ram = 0, cores = 8, images = 50, save_every = 500, workers = -1,
         batch = -1;
  bool ema = false, dop = false, checkpointing = false, no_checkpointing = false;
};

AiToolkitRequest ai_toolkit_request(const nlohmann::json& request);
ExitCode answer(const AiToolkitRequest& request, const Show& show);

}  // namespace plimsoll
