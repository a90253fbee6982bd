// The fastest recipe that fits, and everything around that answer: what changes, what it costs, what else there is, and what to do when
// nothing fits. Plain data; report/plan_report.h shows it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plan/search.h"

namespace plimsoll {

struct PlanRequest {
  Job job;  // resolved
  Constraints constraints;
  Objective objective = Objective::throughput;
  double leave_free = 0;      // of the device, beside the interval
  double prefer_free = 0;     // of what is then left, where that costs next to no time
  bool beyond_words = false;  // also what is better with what Constraints::without leaves out
  Calibration calibration;
  Cluster cluster;
  bool brief = false;  // only the answer: no ladders, effects, sensitivities
  bool full = false;   // every candidate in full, even where that takes seconds
  OnProgress progress;
  bool keep_best = false;       // where `progress` ends it, the best plan so far; else Cancelled
  const Runs* known = nullptr;  // executions behind the same question that need not be made again
};

// A candidate on the one device of its plan.
struct PlannedRun {
  Patch changes;
  Job job;
  Need need;
  int64_t global_batch = 1;
  bool extrapolated = false;  // from short runs
};

struct Alternative {
  LeverKind kind = LeverKind::same_result;
  PlannedRun run;
};

struct Rung {
  std::string name;  // "safe", or what is done
  PlannedRun run;
  double share = 0;  // of the device, at the upper end of the need
};

// One change alone, on top of the job as it is.
struct QuickFix {
  Lever lever;
  LeverOutcome outcome = LeverOutcome::nothing;
  PlannedRun run;
  Bytes saving;
  double slower = 0;  // seconds a sample as a part of what they are; unknown: not a number
  std::string why;    // it does not help, or cannot be done
};

struct Sensitivity {
  std::string unit;  // "sample", "token", "layer", "rank"
  Bytes bytes;       // of allocated memory for one more
};

struct BatchAnswer {
  int64_t maximum = 0;      // samples per device with which the expected need still fits; 0: not even one
  int64_t recommended = 0;  // with which nine tenths of the device are enough, at the upper end of the need
  std::string note;         // what so small a batch does to training; empty
};

// Something smaller than what was asked for, which would fit.
struct GoalChange {
  std::string what;   // "sequences of 1024"
  std::string flags;  // how to ask for it
  PlannedRun run;
};

struct Shortage {
  PlannedRun smallest;  // of all that was allowed
  Bytes missing;
  std::vector<GoalChange> changes;
};

struct Plan {
  TargetDevice device;
  Objective objective = Objective::throughput;
  bool fewest = false;            // on as few devices as will do
  Bytes limit;                    // for the upper end of the need
  std::optional<int64_t> global;  // that was to be kept
  PlannedRun as_is;
  std::string as_is_impossible;
  std::optional<Alternative> best;
  std::vector<Alternative> alternatives;  // faster, but more of a change
  std::string trainer;                    // whose words it is in; empty: anyone's
  std::vector<std::string> not_in_flags;  // settings that it does without, since the trainer has them in its file alone
  std::optional<Alternative> beyond;      // better, with what that trainer has no word for
  std::vector<Alternative> front;         // memory against time: by kind, then the smallest first
  std::vector<Rung> up, down;
  std::vector<QuickFix> fixes;  // what helps, by how little it disturbs and costs; then the rest
  Phase peak_phase = Phase::setup;
  std::vector<Sensitivity> sensitivity;
  std::optional<BatchAnswer> batch;
  std::optional<Shortage> shortage;
  std::string unanswered;                  // why there is neither a plan nor a shortage
  std::vector<std::string> left_out;       // levers that only move bytes to the host, where that is the device: kOnePool
  std::string calibration;                 // what ties its times to a machine; empty: nothing does
  bool shortened = false;                  // by itself: without what `full` asks for
  std::vector<int64_t> extrapolated_from;  // tokens of the short runs; empty: every candidate was executed in full
  size_t executed = 0;                     // candidates, of all plans that were made together
  size_t taken = 0;                        // of them, those that PlanRequest::known has
  bool unfinished = false;                 // somebody ended it: the best of what was executed by then
};

// One plan for each device, from shared executions.
std::vector<Plan> make_plans(const PlanRequest& request, std::vector<TargetDevice> devices);

}  // namespace plimsoll
