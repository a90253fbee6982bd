// The memory of a run as a document: settings, a numbered breakdown with shapes and bytes, totals, ranked bottlenecks,
// recommendations each with its simulated saving, and a comparison of configurations with a verdict for a given memory.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "estimate/estimate.h"
#include "estimate/fit.h"
#include "plan/levers.h"
#include "report/document.h"
#include "systems/phrases.h"

namespace plimsoll {

struct ComparedConfiguration {
  std::string name;  // a phrase, or a file's name
  Job job;
  Estimate estimate;
  std::optional<Fit> fit;  // on the device asked for
};

struct SeedReport {
  Estimate estimate;  // with all tensors of the peak
  std::optional<WhatIf> what_if;
  std::optional<TargetDevice> device;
  std::vector<ComparedConfiguration> comparison;  // the job itself first
};

// Simulates everything the document needs. `others`: configurations to compare with; none: smaller ones of the same job are made.
SeedReport make_seed_report(const Job& job, const std::optional<TargetDevice>& device,
                            const std::vector<std::pair<std::string, Job>>& others);
doc::Document seed_report_document(const SeedReport& report, Language language);

}  // namespace plimsoll
