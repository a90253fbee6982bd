#include "trace/trace.h"

namespace plimsoll {

std::string_view category_name(Category c) {
  static constexpr std::array<std::string_view, kCategories> kNames{
      "parameter",           "buffer",        "input",           "gradient",
      "optimizer state",     "ema",           "activation",      "backward temporary",
      "optimizer temporary", "workspace",     "gradient bucket", "unsharded parameter",
      "unsharded gradient",  "gather buffer", "reduce buffer"};
  return kNames[static_cast<size_t>(c)];
}

std::string_view phase_name(Phase p) {
  static constexpr std::array<std::string_view, kPhases> kNames{"setup", "forward",    "backward", "optimizer",
                                                                "ema",   "evaluation", "sampling"};
  return kNames[static_cast<size_t>(p)];
}

NameId Trace::intern(std::string_view name) {
  if (name.empty()) return 0;
  auto [it, added] = name_ids_.try_emplace(std::string(name), static_cast<NameId>(names.size()));
  if (added) names.emplace_back(name);
  return it->second;
}

ScopeId Trace::add_scope(ScopeId parent, std::string_view name) {
  scopes.push_back({parent, intern(name)});
  return static_cast<ScopeId>(scopes.size() - 1);
}

std::string Trace::scope_path(ScopeId scope) const {
  std::string path;
  for (; scope != 0; scope = scopes[scope].parent) {
    const std::string& name = names[scopes[scope].name];
    path = path.empty() ? name : name + "." + path;
  }
  return path;
}

}  // namespace plimsoll
