// A recorded run or a trace in short, as text: its page (page.h) without the pictures that need one.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "report/style.h"
#include "trace/memory_stats.h"

namespace plimsoll {

std::string run_text(const nlohmann::ordered_json& page, const Style& style);

// What the counters of torch.cuda.memory_stats() mean.
std::string stats_text(const MemoryStats& stats, const Style& style);
nlohmann::ordered_json stats_json(const MemoryStats& stats);

}  // namespace plimsoll
