// The call stacks of a snapshot, each looked at and kept once, however often a file has it.
#pragma once

#include <string>
#include <unordered_map>

#include "trace/pickle.h"
#include "trace/snapshot.h"

namespace plimsoll {

// What the files of a simulated run's frames begin with; the module follows.
inline constexpr std::string_view kSimulatedFile = "plimsoll:";

class SnapshotStacks {
 public:
  SnapshotStacks(const Pickle& pickle, Snapshot& out);

  // Index into Snapshot::stacks for the value of a "frames" key, the same for equal lists; 0 for None and an empty list.
  uint32_t stack(Pickle::Id frames);

 private:
  struct Frame {
    bool empties_cache;
    uint32_t place;  // 0: C++ or PyTorch's own
  };
  Frame frame(Pickle::Id id);
  Frame look_at(Pickle::Id id);

  const Pickle& pickle_;
  Snapshot& out_;
  Pickle::Id name_ = Pickle::kNothing, filename_ = Pickle::kNothing, line_ = Pickle::kNothing;  // of keys, once the file has them
  std::unordered_map<uint64_t, uint32_t> stacks_;                                               // by a hash of all their frames
  std::unordered_map<Pickle::Id, Frame> frames_;
  std::unordered_map<std::string, uint32_t> places_;
};

}  // namespace plimsoll
