// What a log says of a failure: the first out-of-memory in it, who asked, when, and what held the memory; causes and what to change, in
// order.
#pragma once

#include <istream>
#include <optional>
#include <string>
#include <vector>

#include "diagnose/progress.h"
#include "diagnose/set_already.h"
#include "diagnose/symptom.h"
#include "diagnose/traceback.h"
#include "estimate/estimate.h"
#include "plan/levers.h"

namespace plimsoll {

inline constexpr size_t kShownFixes = 3;  // of those there are; they are executed in full

struct Fix {
  std::string change, why;
  std::string flags;               // a setting to write: an environment variable, or flags of plimsoll
  std::optional<Bytes> saving;     // of device memory, simulated for the run
  std::optional<Verdict> verdict;  // on the device of the log, with the saving
};

// Whether the memory would have been there in one piece.
enum class Fragmentation : uint8_t { no, yes, unknown };
const char* to_string(Fragmentation f);

// The run beside the log.
struct KnownRun {
  Estimate estimate;
  std::optional<Fit> fit;             // on the device of the log, when it says how large that is
  WhatIf what_if;                     // in the order in which to try the changes
  std::vector<std::string> by_short;  // changes that were not executed in full (quick_what_if.h)
  bool unfinished = false;            // somebody ended it: changes are missing
  std::vector<std::string> matches;   // tensors of the run that have the size that was asked for
};

struct Diagnosis {
  std::optional<Symptom> symptom;  // the first; none: no text of the log says so
  int64_t line = 0;                // of it, from 1
  std::string text;                // the message, on one line
  std::string excerpt;             // the lines around it: traceback and message
  std::optional<int> rank;
  int64_t occurrences = 0;  // of symptoms, the first included; one that is printed again, or by another rank, is the same
  std::vector<int> ranks;   // that had one
  bool recovered = false;   // training went on after the last of them
  std::optional<Progress> progress;
  Traceback traceback;
  std::string phase;
  std::optional<bool> first_step;
  Fragmentation fragmentation = Fragmentation::unknown;
  std::optional<Bytes> others;  // in use on the device by other processes
  bool binary = false;          // no text at all
  bool is_log = false;          // something in it is of a log: a symptom, a step, a traceback, a level or a time before a line
  int64_t lines = 0;            // of the log
  SetAlready set;               // what the log, the command and the environment show

  std::optional<KnownRun> run;
  std::vector<std::string> causes;
  std::vector<Fix> fixes;

  // Whether pieces are why: what is reserved and not allocated would have been enough, and is a tenth of what is reserved, the share at
  // which `estimate` names it. Less than that is what a sound allocator keeps around, on a device that is full.
  bool fragmented() const;
  bool is_oom() const { return symptom && symptom->certainty != Certainty::possible; }
};

// Reads the whole log; memory stays bounded. A short one that is commented, quoted, wrapped or JSON (other_forms.h) is read as what it was.
Diagnosis diagnose(std::istream& log);
// The same with the run that failed, which gives computed savings. Its model must be resolved. Told after each execution, `progress` may
// end it: false, and what was executed by then is there.
bool add_run(Diagnosis& d, const Job& job, const std::optional<TargetDevice>& target = {}, const OnProgress& progress = {});

// For diagnose() and add_run(): fills causes and fixes from the rest.
void find_causes(Diagnosis& d);
void find_fixes(Diagnosis& d);

}  // namespace plimsoll
