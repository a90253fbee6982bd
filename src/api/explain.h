// What a configuration really does, or what a log says: what `plimsoll explain` and plimsoll_explain() do between the question and the
// answer.
#pragma once

#include "api/request.h"
#include "api/show.h"
#include "report/explain_report.h"

namespace plimsoll {

struct ExplainRequest {
  JobRequest job;
  DeviceRequest devices;
  std::string run;       // whose log it is, when `job` names a log: a model, a file, a command
  bool verbose = false;  // of a log: every change, not the first three
  std::string bundle;    // a path for the archive to ask for help with; empty: none
  // When `job` names a file that a program wrote about its memory (recorded_file.h).
  std::optional<int> device;
  std::string marks;
};

// What a job will do and where each value is from, with an estimate that lists so many tensors.
Explanation explanation(Runs& runs, Job job, const std::optional<DeviceSpec>& device, size_t tensors);

const Keys<ExplainRequest>& explain_keys();
std::vector<RequestKey> explain_request_keys();
ExplainRequest explain_request(const nlohmann::json& request);
ExitCode answer(const ExplainRequest& request, const Show& show);

}  // namespace plimsoll
