// Runs a training command to its end: when memory runs out it decides on other settings, writes them into the command, and starts it again
// from its last checkpoint, with the global batch kept. Every decision is an event with its reason; the state survives this process.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "supervise/batch_scaler.h"
#include "supervise/device_peak.h"
#include "supervise/run_settings.h"

namespace plimsoll {

// EX_TEMPFAIL of sysexits.h: what could be tried was tried.
inline constexpr int kExhausted = 75;

struct SupervisorRequest {
  std::vector<std::string> command;
  std::vector<std::string> set;  // templates (run_settings.h)
  RunValues given;
  int64_t minimum = 1, maximum = 0;  // of the micro-batch
  int64_t retries = 8;               // failures without progress between them
  double backoff = 1;                // seconds before the first restart; twice as many before each next, up to 60
  double grace = 10;                 // seconds between SIGTERM and SIGKILL for what is left behind
  double patience = 60;              // seconds that another supervisor in the folder may take to end
  double hang = 300;                 // seconds of silence after an out-of-memory before what still runs is ended; 0: never
  double grow_after = 3600;          // seconds that a size has to have gone well before a restart tries the next one
  std::string folder, events;        // empty: the usual ones
  std::string resume_flag, checkpoints;
  bool allocator = true;                              // expandable segments after a device ran out of memory
  bool requeue = false;                               // inside a Slurm job restarts are Slurm's
  std::optional<int> requeue_exit;                    // by this exit code (RequeueExit of slurm.conf) instead of scontrol
  bool anew = false;                                  // what an earlier start saved is set aside
  bool quiet = false;                                 // only errors are said
  std::function<void(const std::string& lines)> say;  // where they go; may be empty
  // Which of several is meant, as an index; empty: nobody is there to ask.
  std::function<size_t(const std::string& question, const std::vector<std::string>& choices)> ask;
  BatchScaler::Predict predict;          // the largest micro-batch that fits, by simulation; may be empty
  std::vector<std::string> first_notes;  // what the first estimate said
  std::shared_ptr<DevicePeak> peak;      // looks at devices while it runs; null: nobody does
  // Keeps what was measured with these settings; what it says about that, or nothing.
  std::function<std::string(const RunValues& values, const DevicePeak::Most& most)> measured;
};

// The code to exit with: the command's own, 75 when it gave up, 126 or 127 when the command cannot be started.
int supervise(const SupervisorRequest& request);
// How it chooses micro-batches for a command that begins with these values.
ScalerSettings scaler_settings(const SupervisorRequest& request, const RunValues& first);

}  // namespace plimsoll
