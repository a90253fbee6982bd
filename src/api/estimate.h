// What a run needs and whether it fits: what `plimsoll estimate` and plimsoll_estimate() do between the question and the answer.
#pragma once

#include "api/host_request.h"
#include "api/request.h"
#include "api/show.h"
#include "report/estimate_report.h"

namespace plimsoll {

struct EstimateRequest {
  JobRequest job;
  DeviceRequest devices;
  HostRequest host;
  bool what_if = false;
  bool verbose = false;     // everything, not the verdict and a few rows
  bool calibrated = false;  // measured peaks of like runs on this machine count
  int64_t top = 10;         // of the largest tensors
  std::string save_trace;   // a path; empty: nowhere
  std::string snapshot;     // a path for the run as a PyTorch memory snapshot; empty: nowhere
  TextOptions text;
};

const Keys<EstimateRequest>& estimate_keys();
std::vector<RequestKey> estimate_request_keys();
EstimateRequest estimate_request(const nlohmann::json& request);
ExitCode answer(const EstimateRequest& request, const Show& show);

}  // namespace plimsoll
