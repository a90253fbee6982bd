// What a supervised run is at, from one start of the supervisor to the next.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "supervise/checkpoints.h"

namespace plimsoll {

struct RunState {
  int64_t attempt = 0;  // starts of the command
  int64_t workers = -1;
  bool allocator = false;  // expandable segments are set by us
  int64_t failures = 0;    // since there was progress
  int64_t best_step = 0;   // the furthest that its output told
  double well = 0;         // seconds that this size has gone well
  nlohmann::json scaler;   // null: none
  CheckpointTimes before;  // checkpoints that were there before its first start

  nlohmann::ordered_json json(const std::vector<std::string>& command) const;
  // Throws an Error for a document that is none.
  static RunState of(const nlohmann::json& saved);
};

// Throws an Error when a newer version saved it.
void check_version(const nlohmann::json& saved, const std::string& file);

}  // namespace plimsoll
