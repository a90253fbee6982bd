#include "estimate/peak_tree.h"

#include <algorithm>
#include <map>

namespace plimsoll {

namespace {

bool is_number(const std::string& s) {
  return !s.empty() && std::all_of(s.begin(), s.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// Adds bytes along a path; a node's bytes are the sum over its subtree.
class TreeBuilder {
 public:
  explicit TreeBuilder(bool counts_leaves = false) : counts_leaves_(counts_leaves) {}

  void add(const std::vector<std::string>& path, int64_t bytes) {
    Item* item = &root_;
    item->bytes += bytes;
    for (const std::string& name : path) {
      item = &item->children[name];
      item->bytes += bytes;
    }
    item->own += bytes;
    ++item->count;
  }

  TreeNode finish(std::string name, const std::map<std::string, int64_t>& repeats) const {
    return build(root_, std::move(name), "", repeats);
  }

 private:
  struct Item {
    int64_t bytes = 0, own = 0, count = 0;
    std::map<std::string, Item> children;
  };

  TreeNode build(const Item& item, std::string name, const std::string& path, const std::map<std::string, int64_t>& repeats) const {
    TreeNode node;
    node.name = std::move(name);
    node.bytes = {item.bytes};
    if (auto it = repeats.find(path); it != repeats.end()) node.repeats = it->second;
    if (counts_leaves_ && item.children.empty()) node.repeats = item.count;
    for (const auto& [child_name, child] : item.children)
      node.children.push_back(build(child, child_name, path.empty() ? child_name : path + "." + child_name, repeats));
    if (item.own != 0 && !node.children.empty()) node.children.push_back({"[self]", {item.own}, 1, {}});
    std::stable_sort(node.children.begin(), node.children.end(), [](const TreeNode& a, const TreeNode& b) { return a.bytes > b.bytes; });
    if (node.children.size() == 1 && node.children[0].name == "*") {  // a list and its items are one row
      TreeNode items = std::move(node.children[0]);
      items.name = node.name + ".*";
      return items;
    }
    return node;
  }

  bool counts_leaves_;
  Item root_;
};

// How many numbered children each folded path stands for.
std::map<std::string, int64_t> count_repeats(const Trace& trace) {
  std::map<std::string, int64_t> out;
  for (ScopeId scope = 1; scope < trace.scopes.size(); ++scope) {
    if (!is_number(trace.names[trace.scopes[scope].name])) continue;
    std::string path = "*";
    bool nested = false;
    for (ScopeId up = trace.scopes[scope].parent; up != 0; up = trace.scopes[up].parent) {
      const std::string& name = trace.names[trace.scopes[up].name];
      nested |= is_number(name);
      path = (is_number(name) ? "*" : name) + "." + path;
    }
    if (!nested) ++out[path];
  }
  return out;
}

}  // namespace

std::vector<std::string> folded_path(const Trace& trace, const StorageRecord& s, Category category) {
  std::vector<std::string> path;
  for (ScopeId scope = s.scope; scope != 0; scope = trace.scopes[scope].parent) {
    const std::string& name = trace.names[trace.scopes[scope].name];
    path.push_back(is_number(name) ? "*" : name);
  }
  std::reverse(path.begin(), path.end());
  if (!path.empty()) return path;
  if (category == Category::input) return {"[inputs]"};
  if (category == Category::workspace) return {"[workspaces]"};
  if (s.phase == Phase::optimizer || s.phase == Phase::ema) return {"[optimizer]"};
  return {"[loss]"};
}

TreeNode module_tree(const Trace& trace, const std::vector<LiveStorage>& alive, const std::string& name) {
  TreeBuilder modules;
  for (const LiveStorage& l : alive) modules.add(folded_path(trace, trace.storages[l.id], l.category), trace.storages[l.id].bytes);
  return modules.finish(name, count_repeats(trace));
}

TreeNode place_tree(const Trace& trace, const std::vector<LiveStorage>& alive, const std::string& name) {
  TreeBuilder places;
  for (const LiveStorage& l : alive) {
    const StorageRecord& s = trace.storages[l.id];
    places.add(s.scope == 0 ? std::vector<std::string>{trace.names[s.op]} : folded_path(trace, s, l.category), s.bytes);
  }
  return places.finish(name, count_repeats(trace));
}

TreeNode category_tree(const Trace& trace, const std::vector<LiveStorage>& alive, const std::string& name) {
  TreeBuilder categories;
  for (const LiveStorage& l : alive) {
    std::vector<std::string> path = folded_path(trace, trace.storages[l.id], l.category);
    path.insert(path.begin(), std::string(category_name(l.category)));
    categories.add(path, trace.storages[l.id].bytes);
  }
  return categories.finish(name, {});
}

TreeNode tensor_tree(const Trace& trace, const std::vector<LiveStorage>& alive, const std::string& name) {
  TreeBuilder tensors(true);
  for (const LiveStorage& l : alive) {
    const StorageRecord& s = trace.storages[l.id];
    std::vector<std::string> path = folded_path(trace, s, l.category);
    path.insert(path.begin(), std::string(category_name(l.category)));
    path.push_back(trace.names[s.op] + "()");
    const std::string& shape = trace.names[l.id < trace.shapes.size() ? trace.shapes[l.id] : 0];
    path.push_back(shape.empty() ? to_string(Bytes{s.bytes}) : shape);
    tensors.add(path, s.bytes);
  }
  return tensors.finish(name, {});
}

}  // namespace plimsoll
