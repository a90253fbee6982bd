// What a log says of a failure: the first out-of-memory in it, who asked, when, and what held the memory; causes and what to change, in
// order.
#pragma once

#include <istream>
#include <optional>
#include <string>
#include <vector>

#include "diagnose/progress.h"
#include "diagnose/symptom.h"
#include "diagnose/traceback.h"
#include "estimate/estimate.h"
#include "plan/levers.h"

namespace plimsoll {

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
  std::optional<Fit> fit;  // on the device of the log, when it says how large that is
  WhatIf what_if;
  std::vector<std::string> matches;  // tensors of the run that have the size that was asked for
};

struct Diagnosis {
  std::optional<Symptom> symptom;  // the first; none: no text of the log says so
  int64_t line = 0;                // of it, from 1
  std::string text;                // the message, on one line
  std::string excerpt;             // the lines around it: traceback and message
  std::optional<int> rank;
  int64_t occurrences = 0;  // of symptoms, the first included
  std::vector<int> ranks;   // that had one
  bool recovered = false;   // training went on after the last of them
  std::optional<Progress> progress;
  Traceback traceback;
  std::string phase;
  std::optional<bool> first_step;
  Fragmentation fragmentation = Fragmentation::unknown;
  std::optional<Bytes> others;  // in use on the device by other processes
  bool binary = false;          // no text at all
  int64_t lines = 0;            // of the log

  std::optional<KnownRun> run;
  std::vector<std::string> causes;
  std::vector<Fix> fixes;

  bool is_oom() const { return symptom && symptom->certainty != Certainty::possible; }
};

// Reads the whole log; memory stays bounded.
Diagnosis diagnose(std::istream& log);
// The same with the run that failed, which gives computed savings. Its model must be resolved.
void add_run(Diagnosis& d, const Job& job, const std::optional<TargetDevice>& target = {});

// For diagnose() and add_run(): fills causes and fixes from the rest.
void find_causes(Diagnosis& d);
void find_fixes(Diagnosis& d);

}  // namespace plimsoll
