// What a plan may change. Levers of one knob exclude each other; knobs combine. What costs nothing is on from the start, and taken back
// at the end where it is not needed.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "plan/batches.h"
#include "plan/candidate.h"
#include "plan/levers.h"

namespace plimsoll {

struct Knob {
  const char* name;  // for --keep and --allow
  const char* help;
  bool asked_for;  // only with --allow: it changes what is trained on, or the model itself
};
const std::vector<Knob>& knobs();

struct Constraints {
  std::set<std::string> keep;   // knobs that stay as they are
  std::set<std::string> allow;  // knobs that are turned only when the user says so
  std::optional<int64_t> global_batch;
  std::set<std::string> without;  // settings that the answer has no word for, and names of levers
  bool placements = true;         // checkpoints of chosen blocks; false: of all or none, as every trainer has it
  int64_t gpus = 1;               // at most so many; the job's own number when it has one
};
// Throws an Error for a name that is no knob, and for a contradiction.
void check(const Constraints& constraints);

// A choice and how much it disturbs.
struct Choice {
  Patch changes;
  LeverKind kind = LeverKind::same_result;
};

struct Space {
  std::vector<Patch> costless;    // neither time nor numbers; whether they save memory is seen by executing them
  Patch free;                     // those of them that are on from the start
  std::vector<Choice> groups;     // what decides about weights, gradients and optimizer states; the first changes nothing
  std::vector<Choice> losses;     // the same for the loss,
  std::vector<Choice> offloads;   // for activations on the host,
  std::vector<Choice> lengths;    // for what the user allows to be cut, the longest first
  bool checkpointing = true;      // may be changed
  bool placements = true;         // of some blocks
  bool batch = true;              // the micro-batch may be changed
  bool accumulation = false;      // where the micro-batch stays: the micro-steps may change all the same, for a total that was asked for
  std::set<std::string> keep;     // knobs that stay as they are
  std::set<std::string> allow;    // knobs that are turned only when the user says so
  std::set<std::string> without;  // settings that the answer has no word for, and names of levers
  std::optional<int64_t> global;  // what is kept; none: it is free

  bool turns(const Lever& lever) const;     // whether it may: as what is kept, allowed and left out have it
  bool excludes(const Lever& lever) const;  // by what is kept and left out, whether it is allowed or not
};

// `free` holds all that is costless. Nothing of it moves bytes to the host of a device that shares its memory.
Space space_of(const Job& job, const Constraints& constraints, const TargetDevice& device);
std::vector<Split> splits_of(const Space& space, const Job& job);

}  // namespace plimsoll
