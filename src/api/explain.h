// What a configuration really does: what `plimsoll explain` and plimsoll_explain() do between the question and the answer.
#pragma once

#include "api/request.h"
#include "api/show.h"

namespace plimsoll {

struct ExplainRequest {
  JobRequest job;
  DeviceRequest devices;
};

ExplainRequest explain_request(const nlohmann::json& request);
ExitCode answer(const ExplainRequest& request, const Show& show);

}  // namespace plimsoll
