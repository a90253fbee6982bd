// `schema` of each verb's answers: it changes when a key is renamed, removed or given another meaning.
#pragma once

namespace plimsoll {

constexpr int kEstimateSchema = 3, kCompareSchema = 2, kExplainSchema = 3, kReportSchema = 3, kPlanSchema = 3, kReplaySchema = 2;

}  // namespace plimsoll
