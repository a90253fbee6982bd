// Plans for a run: what `plimsoll plan` and plimsoll_plan() do between the question and the answer.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "api/request.h"
#include "api/show.h"

namespace plimsoll {

struct SearchRequest {
  JobRequest job;
  DeviceRequest devices;  // none: those of this machine
  std::string goal = "throughput";
  std::vector<std::string> keep, allow;  // knobs
  int64_t total_batch = 0;               // 0: the run's own
  int64_t num_gpus = 1;
  std::optional<double> leave_free;  // part of the device; none: some, where that costs next to no time
  double step_time = 0;              // seconds that a step of the run takes; 0: not known
  bool calibrated = false;           // step times of like runs on this machine count
  std::string host_memory;           // a size; empty: the host is not asked about
  std::string matrix;                // "gpu=a,b,batch=1,2"; a table instead of a plan
  int64_t world = 0;                 // layouts over so many devices instead of a plan
  std::vector<std::string> layouts;  // their kinds; none: all
  int64_t node = 8;                  // devices of one node
  double network = 40;               // GB/s of one device to other nodes
  bool unrestricted = false;         // also with what the user's trainer has no word for
  bool full = false;                 // everything around the plan, whatever it takes
  bool flags = false;                // only what changes, in the trainer's spelling
  bool diff = false;                 // of the user's file
  std::string write;                 // a path for that file with the changes; must not exist
  std::string generate;              // a fresh file of that kind instead
};

// Where `plan --rules ai-toolkit` went.
constexpr const char* kAiToolkitHint = "the AI Toolkit's rules are a command of their own: plimsoll ai-toolkit --arch flux --vram 24";

const Keys<SearchRequest>& plan_keys();
std::vector<RequestKey> plan_request_keys();
SearchRequest search_request(const nlohmann::json& request);
// 3 when nothing fits.
ExitCode answer(const SearchRequest& request, const Show& show);

}  // namespace plimsoll
