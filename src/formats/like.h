// "Like trl": what a trainer does where nothing is said, for a model that is named alone. Each is the smallest document of that trainer,
// read by its own reader (formats.h), so that a default stands in one place. docs/like.md has them as a table.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "job/job.h"

namespace plimsoll {

// What the user asks for beside the model, as far as the trainer is told about it.
struct LikeRequest {
  std::string model;
  std::optional<bool> adapter;  // none: as the trainer does by itself
  std::string quantization;     // "nf4", "int8"; empty: as the trainer does by itself
};

std::vector<std::string> trainers_to_be_like();

// Sets the job's recipe, with a finding that names the trainer and its version. Throws an Error for a word that is none of them.
void read_like(Job& job, const std::string& trainer, const LikeRequest& request);

}  // namespace plimsoll
