// A run as the AI Toolkit's set-up would have it: what its rules and its document answer, and what an execution of the same run gives.
// What `plimsoll ai-toolkit` does between the question and the answer.
#pragma once

#include <string>

#include "api/request_keys.h"
#include "api/show.h"

namespace plimsoll {

// Sizes of the machine are in GB. 0: not given.
struct AiToolkitRequest {
  std::string version = "v3", arch = "flux", quantization = "none", target = "lora", priority = "quality", training = "other",
              experience = "intermediate", storage = "ssd", gpu = "nvidia";
  double resolution = 1024, vram = 24, unified = 0, ram = 0, available_ram = 0, cores = 8, images = 50, save_every = 500;
  std::optional<double> workers, batch;  // none: as the set-up proposes
  std::optional<bool> checkpointing;     // none: as the set-up proposes
  bool ema = false, dop = false;
};

const Keys<AiToolkitRequest>& ai_toolkit_keys();
std::vector<RequestKey> ai_toolkit_request_keys();
AiToolkitRequest ai_toolkit_request(const nlohmann::json& request);
ExitCode answer(const AiToolkitRequest& request, const Show& show);

}  // namespace plimsoll
