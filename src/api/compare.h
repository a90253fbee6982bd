// Runs side by side: what `plimsoll compare` and plimsoll_compare() do between the question and the answer.
#pragma once

#include "api/request.h"

#include <nlohmann/json.hpp>
#include "api/show.h"

namespace plimsoll {

// A run by its name; an empty name is that of its model.
struct NamedRun {
  std::string name;
  JobRequest job;
};

// A setting and its values: one run for each.
struct Variation {
  struct Value {
    std::string text;  // in the run's name
    nlohmann::json value;
  };
  std::string key;
  std::vector<Value> values;
};

struct CompareRequest {
  std::vector<NamedRun> runs;     // at least one
  std::vector<Variation> varied;  // all combinations, for each of the runs
  DeviceRequest devices;
};

std::vector<RequestKey> compare_request_keys();
CompareRequest compare_request(const nlohmann::json& request);
ExitCode answer(const CompareRequest& request, const Show& show);

}  // namespace plimsoll
