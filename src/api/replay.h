// A recorded or simulated run under any allocator: what `plimsoll replay FILE` and plimsoll_replay() do between the question and the
// answer.
#pragma once

#include <optional>

#include "api/request.h"
#include "api/show.h"

namespace plimsoll {

struct ReplayRequest {
  std::string file;                       // a PyTorch memory snapshot or a trace file
  std::optional<std::string> alloc_conf;  // none: as recorded, or the defaults
  std::string device_memory, in_use, allocator = "cuda";
  std::optional<int> device;  // of a snapshot; none: the busiest
  std::string size;           // of a captured trace: "batch=4,seq=96"; empty: as captured
};

const Keys<ReplayRequest>& replay_keys();
std::vector<RequestKey> replay_request_keys();
ReplayRequest replay_request(const nlohmann::json& request);
ExitCode answer(const ReplayRequest& request, const Show& show);

}  // namespace plimsoll
