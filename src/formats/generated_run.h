// A job as a fresh file and the command that it is for, written in the words of the HF Trainer and its launchers and read again together:
// `job` is what is really started. What neither of them can say is in not_written.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "formats/launch_files.h"

namespace plimsoll {

struct GeneratedRun {
  std::string text;                                // of the file
  std::string command;                             // that starts it, beside the file
  std::map<std::string, std::string> environment;  // that the command does not set itself
  std::vector<WrittenValue> written;               // in the file
  std::vector<NotWritten> not_written;             // what is left to the training program
  std::set<std::string> said;                      // settings that file and command decide about
  Job job;                                         // without a model
};

// `node`: devices of one machine. Throws an Error where the kind is not for that model.
GeneratedRun generate_run(const Job& job, LaunchFile kind, int64_t node = kDevicesOfNode);

// `job` with what was generated in place of what file and command decide about.
Job as_started(const Job& job, const GeneratedRun& run);

// "fsdp", "zero", ...: how it is spread over processes; empty: it is one process.
std::string spread_of(const Job& job);

}  // namespace plimsoll
