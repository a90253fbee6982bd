// A configuration's peak by itself.
#pragma once

#include <nlohmann/json.hpp>

#include "allocator/timeline.h"
#include "model/registry.h"
#include "simulate.h"

namespace plimsoll {

inline int64_t peak_of(const ModelEntry& entry, const nlohmann::json& config) {
  Job job;
  job.model = job.family = entry.name;
  job.config = Config(entry.name, config);
  job.batch = 1;
  job.seq = entry.inputs == InputKind::image || entry.inputs == InputKind::own ? entry.default_seq : 64;
  job.inputs = entry.inputs;
  return ideal_timeline(simulate(job).trace).peak().bytes;
}

}  // namespace plimsoll
