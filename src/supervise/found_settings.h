// Where a command is told its settings: as --set names them, by the rules of a trainer that is known, or by a flag that is plainly the
// batch.
#pragma once

#include <memory>
#include <string>

#include "supervise/supervisor.h"

namespace plimsoll {

struct FoundSettings {
  std::unique_ptr<RunSettings> settings;  // null: nowhere
  std::string why;                        // there are none
  std::string note;                       // what was taken by its name alone
};

// Asks where two flags may be the batch and somebody is there to answer.
FoundSettings found_settings(const SupervisorRequest& request);

}  // namespace plimsoll
