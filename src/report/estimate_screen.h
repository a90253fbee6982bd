// The answer of `estimate` as people meet it: the verdict first, a bar of what fills the memory, the cheapest change that makes it fit,
// what stands out, and a few rows. All the rest (estimate_report.h) is there for whoever asks for it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "estimate/fit.h"
#include "estimate/insights.h"
#include "plan/cheapest_change.h"
#include "report/estimate_report.h"

namespace plimsoll {

struct EstimateScreen {
  Estimate estimate;                     // for the first device asked about
  std::vector<Fit> fits;                 // of all of them
  std::vector<Insight> insights;         // the largest first
  std::optional<CheapestChange> change;  // where the first does not fit or is tight
  std::string fix_command;               // what to ask when no change alone is enough
};

inline constexpr size_t kMostHeadlines = 4;  // devices with a line of their own; of more there is a table
inline constexpr size_t kMostInsights = 3;   // that are shown

// "assumed: 2048 tokens, bf16"; empty: nothing was.
std::string assumed_text(const Job& job);
// "not understood, so not in the answer: micro_batchsize = 4 (did you mean micro_batch_size?)"; empty when every key that may matter is
// known.
std::string unknown_keys_text(const Job& job);
// "in the optimizer step (AdamW's foreach temporaries)".
std::string peak_phrase(const Estimate& e);
// The verdict as one line of text, for the first device.
std::string headline_text(const EstimateScreen& s);

// Title, verdict, bar, change, insights.
doc::Document screen_head(const EstimateScreen& s);
// What stands below it unless everything is asked for: counters, what is alive, the largest modules.
doc::Blocks screen_rows(const EstimateScreen& s);

nlohmann::ordered_json insights_json(const std::vector<Insight>& insights);
nlohmann::ordered_json change_json(const std::optional<CheapestChange>& change);

}  // namespace plimsoll
