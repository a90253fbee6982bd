// One watch from its beginning to its end: what `plimsoll watch` does after its flags are read.
#pragma once

#include <string>
#include <vector>

#include "api/request.h"
#include "report/style.h"
#include "watch/judge.h"

namespace plimsoll {

enum class WatchOutput : uint8_t {
  view,   // a terminal; where there is none: alerts and events, line by line
  once,   // one look as text
  json,   // one look as a document
  jsonl,  // every look as a line
};

struct WatchRequest {
  std::vector<std::string> target;  // a pid, a log, both, or the words of a command to start
  std::vector<int> devices;
  std::string log;
  JobRequest job;  // what to compare with; nothing: the command line of the process, where it can be read
  bool job_given = false;
  bool calibrated = true;
  Thresholds thresholds;
  double interval = 1;  // seconds
  double seconds = 0;   // after which it ends; 0: with the run, or with a key
  WatchOutput output = WatchOutput::view;
  std::string listen, history, replay;
  bool listen_anywhere = false;
  std::string root, nvml, rocm_smi;  // as in `doctor`
  Style style;
};

ExitCode watch(const WatchRequest& request);

}  // namespace plimsoll
