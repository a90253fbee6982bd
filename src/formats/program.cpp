#include "formats/program.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "formats/launchers.h"
#include "util/text.h"

namespace plimsoll {

namespace {

using Json = nlohmann::json;

const Json& flags_of(const Document& d) { return d.value.at("flags"); }

}  // namespace

std::string program_of(const Document& d) {
  if (d.kind != Document::Kind::command || !d.value.is_object()) return "";
  const auto it = d.value.find("program");
  return it != d.value.end() && it->is_string() ? std::filesystem::path(it->get<std::string>()).filename().string() : "";
}

bool runs(const Document& d, std::initializer_list<std::string_view> programs) {
  return std::find(programs.begin(), programs.end(), program_of(d)) != programs.end();
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

int64_t processes_per_node(Reader& r) {
  const std::string launcher = r.text("launcher");
  const bool accelerate = launcher.starts_with("accelerate");
  const char* count = accelerate ? "num_processes" : "num_gpus";
  const std::string path = std::string("/launcher_flags/") + count;
  if ((launcher != "deepspeed" && !accelerate) || r.has(path)) return r.integer("processes", 1);
  const std::optional<int64_t> devices = visible_devices(r.document.value.at("environment"));
  if (!devices)
    r.note(Effect::unknown,
           fmt::format("{} starts a process on every GPU of the machine: taken as one", accelerate ? "accelerate" : launcher),
           fmt::format("--{} is not given", count));
  return devices.value_or(1);
}

// PyTorch 2.9 and later parse the first of these that is set, and only that: the new name comes last.
void read_allocator(Reader& r) {
  std::string used;
  for (const char* name : {"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF"}) {
    const std::string path = std::string("/environment/") + name;
    if (!r.has(path)) continue;
    if (used.empty()) {
      used = name;
      r.set("alloc_conf", r.text(path), path);
    } else if (r.text(path) != r.job.alloc_conf) {
      r.finding(Effect::conflict, path, fmt::format("{} is '{}': that one is used", used, printable(r.job.alloc_conf, 80)),
                "two names of one setting with different values");
    }
  }
}

void read_surroundings(Reader& r) {
  read_allocator(r);
  if (r.has("/launcher_flags/config_file"))
    r.missing("the launcher's file " + printable(r.text("/launcher_flags/config_file"), 120),
              "it is not read: what it says is not part of this answer");
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
