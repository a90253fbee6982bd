#include "formats/launch.h"

#include <fmt/format.h>

#include <filesystem>

#include "formats/format.h"
#include "formats/launchers.h"
#include "formats/readers.h"
#include "job/settings.h"
#include "util/text.h"

namespace plimsoll {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr int64_t kMostProcesses = 1 << 17;

bool is_settings_file(const std::string& name) {
  const std::string extension = lower(fs::path(name).extension().string());
  return extension == ".yaml" || extension == ".yml" || extension == ".json" || extension == ".toml";
}

// Words like batch_size=2, as torchtune, LLaMA-Factory and Hydra take them. ~optimizer.fused takes what the file has away: discarded.
Json assignments_in(const Json& arguments) {
  Json out = Json::object();
  for (const Json& argument : arguments) {
    const std::string text = argument.is_string() ? argument.get<std::string>() : "";
    const size_t equals = text.find('=');
    if (equals == std::string::npos && text.starts_with('~') && text.size() > 1) out[text.substr(1)] = Json(Json::value_t::discarded);
    if (equals == std::string::npos || equals == 0) continue;
    std::string key = text.substr(0, equals);
    while (key.starts_with('+') || key.starts_with('~')) key.erase(0, 1);
    out[key] = parse_scalar(text.substr(equals + 1));
  }
  return out;
}

std::optional<std::string> existing(const Reader& r, const std::string& name) {
  std::error_code error;
  for (const fs::path& candidate : {fs::path(r.document.folder()) / name, fs::path(name)})
    if (fs::is_regular_file(candidate, error)) return candidate.string();
  return std::nullopt;
}

// accelerate's own flags are the keys of its file, and win over it.
void read_accelerate_launch(Reader& r) {
  const Json flags = r.document.value.value("launcher_flags", Json::object());
  Json keys = Json::object();
  for (const char* key : {"mixed_precision", "num_processes", "num_machines", "dynamo_backend"})
    if (flags.contains(key)) keys[key] = flags[key];
  if (flags.contains("use_fsdp")) keys["distributed_type"] = "FSDP";
  if (flags.contains("use_deepspeed")) keys["distributed_type"] = "DEEPSPEED";
  if (flags.contains("multi_gpu")) keys["distributed_type"] = "MULTI_GPU";
  for (const char* key : {"zero_stage", "offload_optimizer_device", "offload_param_device", "deepspeed_config_file"})
    if (flags.contains(key)) keys[std::string("deepspeed_config.") + key] = flags[key];
  Document settings;
  settings.name = r.document.name;
  settings.value = Json::object();
  const std::string file = r.text("/launcher_flags/config_file");
  const std::optional<std::string> path = file.empty() ? std::nullopt : existing(r, file);
  if (path) settings = read_document(*path);
  settings.depth = r.document.depth + 1;
  if (!file.empty() && !path)
    r.missing("the file " + printable(file, 120), "it is not here: what it says is not part of this answer",
              r.origin("/launcher_flags/config_file"));
  overlay(settings, keys, r.document.name + ": --");
  if (const int64_t devices = file.empty() && !flags.contains("num_processes") ? processes_per_node(r) : 1; devices > 1)
    overlay(settings, {{"num_processes", devices}}, r.document.name + ": CUDA_VISIBLE_DEVICES, ");
  Reader inner(r.job, settings);
  read_accelerate(inner);
}

}  // namespace

std::optional<int64_t> visible_devices(const Reader& r) { return visible_devices(r.document.value.value("environment", Json::object())); }

void set_world(Reader& r, int64_t per_node, int64_t nodes, const std::string& origin, Json ddp) {
  if (per_node < 1 || nodes < 1 || per_node > kMostProcesses || nodes > kMostProcesses || per_node * nodes > kMostProcesses)
    throw Error(fmt::format("[{}] {} processes on each of {} nodes", origin, per_node, nodes),
                fmt::format("at most {} processes in all, and at least one", kMostProcesses));
  if (per_node * nodes == 1 && ddp.empty()) return;
  ddp["world"] = per_node * nodes;
  apply_setting(r.job, "ddp", ddp, origin);
  if (per_node > 1) apply_setting(r.job, "ranks_per_host", per_node, origin);
}

void read_launch(Reader& r) {
  read_allocator(r);
  const std::string launcher = r.text("launcher");
  if (launcher == "accelerate" || launcher == "accelerate.commands.launch") {
    read_accelerate_launch(r);
  } else if (launcher != "") {
    const Json flags = r.document.value.value("launcher_flags", Json::object());
    std::string place = r.document.name + ": " + launcher;
    for (const char* name : {"nproc_per_node", "num_gpus", "ntasks_per_node", "np"})
      if (flags.contains(name)) place = r.document.name + ": --" + name;
    set_world(r, processes_per_node(r), r.integer("nodes", 1), place);
  }
  r.ignore({"launcher_flags", "processes", "nodes", "program", "arguments", "environment"});
}

Document settings_of(Reader& r, std::initializer_list<const char*> flags) {
  Document settings;
  settings.kind = Document::Kind::command;
  settings.name = r.document.name;
  settings.value = Json::object();
  Json given = r.document.value.value("flags", Json::object());
  const Json arguments = r.document.value.value("arguments", Json::array());
  std::vector<std::string> named;
  for (const char* flag : flags)
    if (given.contains(flag) && given[flag].is_string()) named.push_back(given[flag].get<std::string>());
  for (const Json& argument : arguments)
    if (argument.is_string() && is_settings_file(argument.get<std::string>())) named.push_back(argument.get<std::string>());
  for (const std::string& name : named) {
    const std::optional<std::string> path = existing(r, name);
    if (path)
      settings = read_document(*path);
    else
      r.missing("the file " + printable(name, 120), "it is not here: what it says is not part of this answer");
    if (path) break;
  }
  settings.depth = r.document.depth + 1;
  for (const char* flag : flags) given.erase(flag);
  overlay(settings, assignments_in(arguments), r.document.name + ": ");
  overlay(settings, given, r.document.name + ": --");
  return settings;
}

}  // namespace plimsoll
