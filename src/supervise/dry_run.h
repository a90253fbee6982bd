// What `plimsoll run` would do with a command, without starting it: where its settings are written, which ones follow an out-of-memory
// error, how it resumes and where its state is kept.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "supervise/supervisor.h"

namespace plimsoll {

struct DryRun {
  RunValues settings;              // as the command gives them
  std::string written_as;          // how the command is given others
  std::string taken_by_name;       // what was taken for a setting by its name alone; empty: nothing
  std::string unchangeable;        // why it cannot be given others; empty: it can
  std::vector<RunValues> sizes;    // the first, and those after it: each follows an out-of-memory error of the device
  bool simulated = false;          // a size that fits by simulation is tried before the next one
  std::string resume_flag;         // empty: as the command does by itself
  std::string state;               // the folder
  std::vector<std::string> notes;  // what the first estimate says
};

DryRun dry_run(const SupervisorRequest& request);
std::string to_text(const DryRun& run);
nlohmann::ordered_json to_json(const DryRun& run);

}  // namespace plimsoll
