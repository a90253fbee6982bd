// A Job as one line for people; as JSON it is job_json of job/settings.h.
#pragma once

#include <string>

#include "job/settings.h"

namespace plimsoll {

// "batch 8 x 1024 tokens, amp, AdamW"; `sample` is what a model that makes its inputs itself calls one.
std::string recipe_text(const Job& job, const std::string& sample);
// The same after "8,030,261,248 parameters, ", which a captured program does not know.
std::string recipe_text(const Job& job, const std::string& sample, const std::string& parameters);

}  // namespace plimsoll
