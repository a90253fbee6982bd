// The memory of a run as one document: its data as JSON, and that JSON inside a page that needs nothing else (web/), or as a table of
// the tensors at the peak. A simulated job, a trace file and a recorded snapshot give documents of one shape; what one does not have
// is null or an empty list.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "allocator/memory_curve.h"
#include "estimate/fit.h"
#include "plan/levers.h"
#include "plan/plan.h"
#include "report/explain_report.h"
#include "report/measured_memory.h"
#include "report/page_curve.h"

namespace plimsoll {

// One process of several that train together.
struct PageRank {
  std::string name;  // "0", "1 to 7"
  DeviceMemory memory;
};

// What a page about a simulated job is made of. The estimate lists as many tensors as the page should.
struct JobPage {
  Explanation explanation;  // with the estimate, and the verdicts on the devices asked for
  Trace trace;              // of the same job, with shapes
  std::vector<Fit> table;   // other devices
  std::optional<WhatIf> what_if;
  std::optional<Plan> plan;  // on the device, when there is one
  std::vector<PageRank> ranks;
  size_t executions = 0;                                  // jobs that were executed for it
  std::function<std::string(const Patch&)> command = {};  // the run with some changes, to be typed; empty: nobody can type it
  std::optional<MeasuredMemory> measured;
};

nlohmann::ordered_json page_json(const JobPage& page);

// A table beside the curves of a trace or a snapshot.
struct PageTable {
  std::string title, note;
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;
};

// A page about memory that was recorded, or that a trace file describes.
struct RunPage {
  std::string kind, title, subtitle;  // "trace", "snapshot"
  std::string state, sentence;        // the verdict: "note", "does not fit"
  const Trace& trace;
  MemoryCurve curve;
  std::vector<LiveStorage> alive;  // at its peak
  CurveColours colours = CurveColours::categories;
  std::optional<int64_t> limit = {};  // what PyTorch could have, when an allocation failed
  std::vector<std::pair<std::string, int64_t>> numbers;
  std::vector<PageTable> tables;
  std::vector<std::string> notes;
};

nlohmann::ordered_json page_json(const RunPage& page);

std::string page_html(const nlohmann::ordered_json& page);
// A recorded run or a trace in short; a job has seed_report.h.
doc::Document page_document(const nlohmann::ordered_json& page);
// The tensors alive at the peak: category, module, op, tensor, count, bytes; their sum is the peak.
std::string page_csv(const nlohmann::ordered_json& page);

}  // namespace plimsoll
