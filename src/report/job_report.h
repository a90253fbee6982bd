// A Job as one line for people and as JSON with the origin of every setting.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "job/job.h"

namespace plimsoll {

// "batch 8 x 1024 tokens, amp, AdamW"; `sample` is what a model that makes its inputs itself calls one.
std::string recipe_text(const Job& job, const std::string& sample);
nlohmann::ordered_json job_json(const Job& job);

}  // namespace plimsoll
