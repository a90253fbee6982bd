// The allocator settings under which a snapshot was recorded, as far as the file tells.
#pragma once

#include <string>

#include "allocator/alloc_conf.h"
#include "trace/snapshot.h"

namespace plimsoll {

struct RecordedSettings {
  AllocConf conf;
  std::string note;  // where they are from, when it is not simply the file; "" otherwise
};

// Effective values win over the text of the environment variable. A file without settings (before 2.3) has the defaults, and
// expandable segments when it shows some. Throws Error naming the key for a value no allocator has.
RecordedSettings recorded_settings(const Snapshot& snapshot);

}  // namespace plimsoll
