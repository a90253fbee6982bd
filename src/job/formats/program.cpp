#include "job/formats/program.h"

#include <algorithm>
#include <filesystem>

#include "util/checked.h"
#include "util/text.h"

namespace plimsoll {

namespace {

using Json = nlohmann::json;

const Json& flags_of(const Document& d) { return d.value.at("flags"); }

}  // namespace

bool runs(const Document& d, std::initializer_list<std::string_view> programs) {
  if (d.kind != Document::Kind::command) return false;
  const std::string name = std::filesystem::path(d.value.value("program", "")).filename().string();
  return std::find(programs.begin(), programs.end(), name) != programs.end();
}

bool has_flag(const Document& d, std::string_view name) { return flags_of(d).contains(std::string(name)); }

std::string flag_text(const Document& d, std::string_view name) {
  const auto it = flags_of(d).find(std::string(name));
  if (it == flags_of(d).end()) return "";
  return it->is_string() ? it->get<std::string>() : it->dump();
}

bool has_only_flags(const Document& d, std::initializer_list<std::string_view> names) {
  for (const auto& item : flags_of(d).items())
    if (std::find(names.begin(), names.end(), item.key()) == names.end()) return false;
  return true;
}

int64_t world_of(const Document& d) { return checked_mul(d.value.value("processes", int64_t{1}), d.value.value("nodes", int64_t{1})); }

void read_surroundings(Reader& r) {
  for (const char* name : {"environment/PYTORCH_CUDA_ALLOC_CONF", "environment/PYTORCH_ALLOC_CONF"})
    if (r.has(std::string("/") + name)) r.set("alloc_conf", r.text(std::string("/") + name), std::string("/") + name);
  r.ignore({"environment", "launcher", "launcher_flags", "processes", "nodes", "program", "arguments"});
}

void require_mappings(const Document& d, std::initializer_list<const char*> keys) {
  for (const char* key : keys)
    if (d.value.contains(key) && !d.value[key].is_object())
      throw Error("[" + d.name + "] " + key + " is " + dump(d.value[key]).substr(0, 80) + ", expected a mapping",
                  "indent its keys below it");
}

void set_or_default(Reader& r, const char* setting, const Json& value, std::string_view path, const std::string& trainer) {
  if (r.has(path))
    r.set(setting, value, path);
  else
    r.set_default(setting, value, trainer);
}

std::string listed(const std::vector<std::string>& names) {
  if (names.size() < 2) return join(names, "");
  return join({names.begin(), names.end() - 1}, ", ") + " and " + names.back();
}

}  // namespace plimsoll
