// What a category of memory is called and how it looks, wherever it is drawn: the one table of both. Red is not among its colours: that is
// for limits.
#pragma once

#include <string_view>
#include <vector>

#include "estimate/estimate.h"
#include "estimate/fit.h"
#include "report/document.h"
#include "trace/trace.h"

namespace plimsoll {

// Categories as people think of them; `other` is what no name is known for: caches, contexts, buffers, inputs.
enum class CategoryGroup : uint8_t { parameters, gradients, optimizer_state, activations, temporaries, other };
inline constexpr size_t kCategoryGroups = 6;

struct CategoryLook {
  const char* name;
  doc::Colour colour;
};
const CategoryLook& look_of(CategoryGroup group);
CategoryGroup group_of(Category category);

// Places of a recorded run, the one with the most first: the same colours, and more where they end.
inline constexpr size_t kPlaceColours = 9;
const char* place_colour(size_t rank);

struct GroupedBytes {
  CategoryGroup group;
  Bytes bytes;
};
// What is alive at the peak by group, in the order of the table; their sum is the peak. None of 0 bytes.
std::vector<GroupedBytes> grouped(const Estimate& e);

// The device's memory at the peak by group: what lies between the tensors and `device` is `other`. A part that would print as 0.0 is in it
// too.
doc::Bar memory_bar(const Estimate& e, Bytes device, std::optional<Bytes> limit);
// On the device asked about, whose memory is the limit; null: none was. No parts where the need is beyond any device.
doc::Bar memory_bar(const Estimate& e, const Fit* fit);

}  // namespace plimsoll
