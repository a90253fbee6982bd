// The two pictures of a page that are drawn change by change, as JSON: memory over time, and the allocator's segments at the peak. What is
// drawn is coloured by category, in the words of category_look.h, or by the place that allocated.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "allocator/memory_curve.h"

namespace plimsoll {

// levels: a torch.profiler timeline, whose categories are less exact than ours.
enum class CurveColours : uint8_t { categories, levels, places };

// What a category is called there.
std::string curve_name(Category category, CurveColours colours);

// Sets `timeline` and `segments` of the page. `steps`: names of the curve's steps, in order; of more there are numbers.
void add_curve(nlohmann::ordered_json& page, const Trace& trace, const MemoryCurve& curve, CurveColours colours,
               const std::vector<std::string>& steps);

}  // namespace plimsoll
