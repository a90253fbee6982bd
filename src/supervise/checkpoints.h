// Checkpoints that a command wrote: which of them is the newest that is whole. A run that is killed while it saves leaves half of one
// behind, and an earlier run may have left its own in the same place; neither is one to go on from.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace plimsoll {

// Paths and the times at which they were last written, in nanoseconds since 1970.
using CheckpointTimes = std::map<std::string, int64_t>;

// What a pattern of files or folders finds now.
CheckpointTimes checkpoints_of(const std::string& pattern);

// Why a file or folder is no whole checkpoint; empty: nothing speaks against it. Looks at sizes, and at the ends of files whose formats
// have one (torch.save's zip, safetensors), not at the weights.
std::string incomplete(const std::string& path);

struct NewestCheckpoint {
  std::string path;                  // empty: there is none
  std::vector<std::string> skipped;  // newer ones and why they were not taken: "out/step-9.pt: it is empty"
};
// `before`: those that were there before the run began. They are not its own, unless they were written anew.
NewestCheckpoint newest_checkpoint(const std::string& pattern, const CheckpointTimes& before);

}  // namespace plimsoll
