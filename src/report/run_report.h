// A recorded run or a trace in short: its page (page.h) without the pictures that need one.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "report/document.h"
#include "trace/memory_stats.h"

namespace plimsoll {

doc::Document run_document(const nlohmann::ordered_json& page);

// What the counters of torch.cuda.memory_stats() mean.
doc::Document stats_document(const MemoryStats& stats);
nlohmann::ordered_json stats_json(const MemoryStats& stats);

}  // namespace plimsoll
