#include "formats/launchers.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "job/settings.h"
#include "util/error.h"
#include "util/text.h"

namespace plimsoll {

namespace {

using Json = nlohmann::json;

struct Launcher {
  std::vector<std::string> processes;    // flags that count them
  bool of_all_nodes = false;             // accelerate and MPI count those of all nodes
  std::vector<std::string> in_all = {};  // flags that count those of all nodes where none of the others is given
};

const std::map<std::string, Launcher> kLaunchers{{"torchrun", {{"nproc_per_node"}}},
                                                 {"torch.distributed.run", {{"nproc_per_node"}}},
                                                 {"torch.distributed.launch", {{"nproc_per_node"}}},
                                                 {"accelerate", {{"num_processes"}, true}},
                                                 {"accelerate.commands.launch", {{"num_processes"}, true}},
                                                 {"deepspeed", {{"num_gpus"}}},
                                                 {"srun", {{"ntasks_per_node"}, false, {"ntasks", "n"}}},
                                                 {"mpirun", {{"np", "n"}, true}},
                                                 {"mpiexec", {{"np", "n"}, true}},
                                                 {"tune", {{"nproc_per_node"}}}};

constexpr const char* kNodeFlags[] = {"nnodes", "num_nodes", "nodes", "N", "num_machines"};

int64_t whole(const Json& flags, const std::string& name, int64_t fallback) {
  const auto it = flags.find(name);
  if (it == flags.end()) return fallback;
  const Json& value = it->is_array() && !it->empty() ? it->back() : *it;  // argparse: the last one counts
  return is_count(value) ? value.get<int64_t>() : fallback;
}

// Counts as they are typed where no number stands: what they come to, or why that is not known.
class Counts {
 public:
  Counts(const Document& command, std::vector<Finding>& findings) : command_(command), findings_(findings) {}

  int64_t processes(const std::string& name, const Json& raw) {
    const std::string text = raw.is_string() ? raw.get<std::string>() : "";
    const bool variable = text.find('$') != std::string::npos;
    if (text != "gpu" && text != "auto" && text != "cpu" && !variable) refuse(name, raw);
    if (text == "cpu") return note(name, text, 1, Effect::unknown, "there is one for every core of the machine");
    const int64_t devices = visible_devices(command_.value["environment"]).value_or(0);
    if (devices > 0) return note(name, text, devices, variable ? Effect::unknown : Effect::note, "the devices of CUDA_VISIBLE_DEVICES");
    return note(name, text, 1, Effect::unknown, variable ? kNoValue : "there is one for every GPU of the machine");
  }

  // "1:4" of torchrun and "1-4" of Slurm: the fewest nodes need the most memory.
  int64_t nodes(const std::string& name, const Json& raw) {
    const std::string text = raw.is_string() ? raw.get<std::string>() : "";
    if (text.find('$') != std::string::npos) return note(name, text, 1, Effect::unknown, kNoValue);
    const size_t mark = text.find_first_of(":-");
    const Json least = parse_scalar(text.substr(0, mark)), most = mark == std::string::npos ? Json() : parse_scalar(text.substr(mark + 1));
    if (!is_count(least) || !is_count(most) || most < least) refuse(name, raw);
    return note(name, text, least.get<int64_t>(), Effect::unknown, "the least that it allows");
  }

 private:
  static constexpr const char* kNoValue = "the variable has no value here";

  [[noreturn]] void refuse(const std::string& name, const Json& raw) const {
    throw Error(fmt::format("[{}] {} is {}, expected a whole number above 0", command_.name, name, printable(dump(raw), 60)),
                fmt::format("e.g. {} 1; one is taken when it is left out", name));
  }

  int64_t note(const std::string& name, const std::string& text, int64_t count, Effect effect, const char* why) {
    findings_.push_back({effect, fmt::format("{} = {}", name, printable(text, 80)), command_.name, fmt::format("taken as {}", count), why});
    return count;
  }

  const Document& command_;
  std::vector<Finding>& findings_;
};

}  // namespace

bool is_launcher(const std::string& program) { return kLaunchers.contains(program); }

bool is_count(const Json& value) { return value.is_number_integer() && value > 0; }

void count_processes(Json& value) {
  const Json& flags = value["launcher_flags"];
  for (const char* name : kNodeFlags) value["nodes"] = whole(flags, name, value.value("nodes", int64_t{1}));
  const Launcher& kind = kLaunchers.at(value["launcher"].get<std::string>());
  for (const std::string& name : kind.processes) {
    if (!flags.contains(name)) continue;
    const int64_t count = whole(flags, name, value.value("processes", int64_t{1})), nodes = value.value("nodes", int64_t{1});
    value["processes"] = kind.of_all_nodes && count % nodes == 0 ? count / nodes : count;
    return;
  }
  for (const std::string& name : kind.in_all) {
    if (!flags.contains(name)) continue;
    const int64_t nodes = value.value("nodes", int64_t{1});
    value["processes"] = (whole(flags, name, nodes) - 1) / nodes + 1;  // the fullest node
  }
}

std::optional<int64_t> visible_devices(const Json& environment) {
  const auto it = environment.find("CUDA_VISIBLE_DEVICES");
  if (it == environment.end() || !it->is_string()) return std::nullopt;
  const std::string list = it->get<std::string>();
  if (list.find('$') != std::string::npos) return std::nullopt;
  return list.empty() || list == "-1" ? 0 : static_cast<int64_t>(split_at(list, ',').size());
}

void settle_counts(Document& command, std::vector<Finding>& findings) {
  const std::string launcher = command.value.value("launcher", "");
  if (launcher.empty()) return;
  Json& flags = command.value["launcher_flags"];
  const Json& environment = command.value["environment"];
  const Launcher& kind = kLaunchers.at(launcher);
  Counts counts(command, findings);
  const auto settle = [&](const std::string& name, bool nodes) {
    if (!flags.contains(name)) return false;
    if (flags[name].is_array() && !flags[name].empty()) flags[name] = Json(flags[name].back());
    const Json raw = flags[name];
    if (launcher == "deepspeed" && raw == -1)
      flags.erase(name);  // its own default: all
    else if (!is_count(raw))
      flags[name] = nodes ? counts.nodes("--" + name, raw) : counts.processes("--" + name, raw);
    return true;
  };
  bool nodes_given = false, processes_given = false;
  for (const char* name : kNodeFlags) nodes_given = settle(name, true) || nodes_given;
  for (const std::string& name : kind.processes) processes_given = settle(name, false) || processes_given;
  for (const std::string& name : kind.in_all) processes_given = settle(name, false) || processes_given;
  count_processes(command.value);
  // as script_documents takes it, where the launcher says nothing
  const auto of_slurm = [&](const char* name) { return parse_scalar(environment.value(name, "1")); };
  if (const Json raw = of_slurm("SLURM_NNODES"); !nodes_given && !is_count(raw)) command.value["nodes"] = counts.nodes("SLURM_NNODES", raw);
  if (const Json raw = of_slurm("SLURM_NTASKS_PER_NODE"); launcher == "srun" && !processes_given && !is_count(raw))
    command.value["processes"] = counts.processes("SLURM_NTASKS_PER_NODE", raw);
  if (kind.of_all_nodes && processes_given) {
    const int64_t nodes = command.value["nodes"].get<int64_t>();
    for (const std::string& name : kind.processes)
      if (const int64_t all = whole(flags, name, nodes); all % nodes != 0)
        throw Error(fmt::format("[{}] --{} {}: so many processes cannot be shared by {} nodes", command.name, name, all, nodes),
                    fmt::format("{} counts those of all nodes together", launcher));
  }
}

}  // namespace plimsoll
