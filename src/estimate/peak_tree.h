// What is alive at a moment as trees. Every byte is in one leaf and children sum to their parent; numbered siblings are one node.
#pragma once

#include <string>
#include <vector>

#include "estimate/estimate.h"

namespace plimsoll {

// Module path from the root, with numbers replaced by '*'; what belongs to no module gets a name in brackets.
std::vector<std::string> folded_path(const Trace& trace, const StorageRecord& storage, Category category);

// Modules as in Python, under `name`.
TreeNode module_tree(const Trace& trace, const std::vector<LiveStorage>& alive, const std::string& name);
// Of a recorded run: from the outermost frame inwards; what has no frames has the name of its place.
TreeNode place_tree(const Trace& trace, const std::vector<LiveStorage>& alive, const std::string& name);
// Categories, each split by module.
TreeNode category_tree(const Trace& trace, const std::vector<LiveStorage>& alive, const std::string& name);
// Categories, modules, ops ("addmm()"), tensors ("(8, 1024, 768) bfloat16"); `repeats` of a tensor is how many are alike.
TreeNode tensor_tree(const Trace& trace, const std::vector<LiveStorage>& alive, const std::string& name);

}  // namespace plimsoll
