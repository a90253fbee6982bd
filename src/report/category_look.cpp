#include "report/category_look.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "report/headline.h"

namespace plimsoll {

// Okabe and Ito's colours, which people with any colour vision tell apart.
const CategoryLook& look_of(CategoryGroup group) {
  static constexpr std::array<CategoryLook, kCategoryGroups> kLooks{{{"parameters", {25, "#0072b2", 'P'}},
                                                                     {"gradients", {74, "#56b4e9", 'G'}},
                                                                     {"optimizer state", {178, "#e69f00", 'O'}},
                                                                     {"activations", {36, "#009e73", 'A'}},
                                                                     {"temporaries", {175, "#cc79a7", 'T'}},
                                                                     {"other", {246, "#999999", 'x'}}}};
  return kLooks[static_cast<size_t>(group)];
}

// Paul Tol's muted colours, without its rose and wine, which are near red (personal.sron.nl/~pault), follow those above.
const char* place_colour(size_t rank) {
  static constexpr std::array<const char*, kPlaceColours> kColours{"#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9",
                                                                   "#999933", "#332288", "#aa4499", "#ddcc77"};
  return kColours[std::min(rank, kPlaceColours - 1)];
}

CategoryGroup group_of(Category category) {
  switch (category) {
    case Category::parameter:
    case Category::unsharded_parameter: return CategoryGroup::parameters;
    case Category::gradient:
    case Category::ddp_bucket:
    case Category::unsharded_gradient: return CategoryGroup::gradients;
    case Category::optimizer_state: return CategoryGroup::optimizer_state;
    case Category::activation: return CategoryGroup::activations;
    case Category::backward:
    case Category::optimizer:
    case Category::gather_buffer:
    case Category::reduce_buffer: return CategoryGroup::temporaries;
    case Category::buffer:
    case Category::input:
    case Category::ema:
    case Category::workspace: break;
  }
  return CategoryGroup::other;
}

namespace {

using BytesOfGroups = std::array<Bytes, kCategoryGroups>;

BytesOfGroups bytes_of_groups(const Estimate& e) {
  BytesOfGroups out{};
  for (const TreeNode& node : e.by_category.children)
    for (int c = 0; c < kCategories; ++c)
      if (node.name == category_name(static_cast<Category>(c))) out[static_cast<size_t>(group_of(static_cast<Category>(c)))] += node.bytes;
  return out;
}

// What is to go is taken from the part, as far as there is something.
void take(Bytes& part, Bytes& rest) {
  const Bytes taken = std::min(part, rest);
  part -= taken;
  rest -= taken;
}

}  // namespace

std::vector<GroupedBytes> grouped(const Estimate& e) {
  std::vector<GroupedBytes> out;
  const BytesOfGroups bytes = bytes_of_groups(e);
  for (size_t i = 0; i < kCategoryGroups; ++i)
    if (bytes[i].count > 0) out.push_back({static_cast<CategoryGroup>(i), bytes[i]});
  return out;
}

doc::Bar memory_bar(const Estimate& e, Bytes device, std::optional<Bytes> limit) {
  BytesOfGroups bytes = bytes_of_groups(e);
  Bytes& other = bytes[static_cast<size_t>(CategoryGroup::other)];
  Bytes sum;
  for (const Bytes b : bytes) sum += b;
  if (device >= sum) {
    other += device - sum;
  } else {  // of a compiled run, whose kernels keep less than the tensors that are known; or of one that was measured to need less
    Bytes rest = sum - device;
    for (const CategoryGroup g : {CategoryGroup::other, CategoryGroup::activations, CategoryGroup::temporaries})
      take(bytes[static_cast<size_t>(g)], rest);
  }
  const int64_t shown = std::max(device, limit.value_or(Bytes{})).count / 400;
  doc::Bar out{{}, limit};
  for (size_t i = 0; i + 1 < kCategoryGroups; ++i) {
    if (bytes[i].count < shown) {
      other += bytes[i];
    } else if (bytes[i].count > 0) {
      const CategoryLook& look = look_of(static_cast<CategoryGroup>(i));
      out.parts.push_back({look.name, bytes[i], look.colour});
    }
  }
  if (other.count > 0) out.parts.push_back({look_of(CategoryGroup::other).name, other, look_of(CategoryGroup::other).colour});
  return out;
}

doc::Bar memory_bar(const Estimate& e, const Fit* fit) {
  if (!fit && !e.memory) return {};
  std::optional<Bytes> limit;
  if (fit && fit->device.capacity) limit = fit->device.capacity->bytes - fit->device.others;
  doc::Bar out = memory_bar(e, fit ? fit->memory.device.bytes : e.memory->device.bytes, limit);
  if (fit && !std::isdigit(static_cast<unsigned char>(fit->device.name[0]))) out.limit_name = device_name(fit->device.name);
  return out;
}

}  // namespace plimsoll
