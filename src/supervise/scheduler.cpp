#include "supervise/scheduler.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "formats/command_line.h"
#include "util/text.h"

extern char** environ;

namespace plimsoll {

namespace {

std::string value(const Environment& e, const char* name) {
  const auto it = e.find(name);
  return it == e.end() ? "" : it->second;
}

int number(const Environment& e, const char* name, int otherwise) {
  const std::string text = value(e, name);
  return text.empty() ? otherwise : std::atoi(text.c_str());
}

struct SlurmAnswer {
  int code = -1;
  std::string text;
};

// A controller that does not answer must not keep the run from going on.
SlurmAnswer ask(const std::string& command) {
  SlurmAnswer said;
  FILE* pipe = popen(("timeout 60 " + command + " 2>&1 </dev/null").c_str(), "r");
  if (!pipe) return said;
  char chunk[4096];
  while (const size_t n = fread(chunk, 1, sizeof chunk, pipe)) said.text.append(chunk, n);
  const int status = pclose(pipe);
  said.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  while (!said.text.empty() && std::isspace(static_cast<unsigned char>(said.text.back()))) said.text.pop_back();
  return said;
}

bool is_job_id(const std::string& id) {
  return !id.empty() && std::all_of(id.begin(), id.end(), [](unsigned char c) { return std::isdigit(c) || c == '_'; });
}

}  // namespace

Environment environment_here() {
  Environment out;
  for (char** at = environ; at && *at; ++at) {
    const std::string entry = *at;
    if (const size_t equals = entry.find('='); equals != std::string::npos) out.emplace(entry.substr(0, equals), entry.substr(equals + 1));
  }
  return out;
}

std::optional<RankHere> rank_here(const Environment& e) {
  struct Launcher {
    const char *name, *sign, *rank, *ranks;
  };
  static constexpr Launcher kLaunchers[] = {
      {"torchrun", "TORCHELASTIC_RUN_ID", "RANK", "WORLD_SIZE"},
      {"mpirun", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
      {"mpirun", "PMI_SIZE", "PMI_RANK", "PMI_SIZE"},
      {"srun", "SLURM_STEP_ID", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"},
  };
  for (const Launcher& l : kLaunchers)
    if (e.contains(l.sign) && number(e, l.ranks, 1) > 1) return RankHere{l.name, number(e, l.rank, 0), number(e, l.ranks, 1)};
  return {};
}

std::optional<SlurmJob> slurm_job(const Environment& e) {
  SlurmJob job;
  job.id = value(e, "SLURM_ARRAY_JOB_ID").empty() ? value(e, "SLURM_JOB_ID")
                                                  : value(e, "SLURM_ARRAY_JOB_ID") + "_" + value(e, "SLURM_ARRAY_TASK_ID");
  if (!is_job_id(job.id)) return {};
  job.restarts = number(e, "SLURM_RESTART_COUNT", 0);
  return job;
}

bool queues_only(const std::vector<std::string>& command) {
  return std::filesystem::path(command_document(command).value.value("program", "")).filename() == "sbatch";
}

int64_t nodes_beside(const std::vector<std::string>& command) {
  const auto program = [](const std::string& word) { return std::filesystem::path(word).filename().string(); };
  bool own = false;  // one that starts this node's processes alone
  for (const std::string& word : command) {
    const std::string name = program(word);
    if (name == "srun" || name == "mpirun" || name == "mpiexec") return 1;
    own |= name == "torchrun" || name == "torch.distributed.run" || name == "torch.distributed.launch" || name == "accelerate";
  }
  return own ? command_document(command).value.value("nodes", int64_t{1}) : 1;
}

std::string requeue(const SlurmJob& job) {
  const SlurmAnswer said = ask("scontrol requeue " + job.id);
  return said.code == 0 ? "" : fmt::format("scontrol requeue {} ended with {}: {}", job.id, said.code, printable(said.text, 200));
}

std::string newest_step_state(const SlurmJob& job) {
  const SlurmAnswer said = ask("sacct -n -P -j " + job.id + " -o State");
  if (said.code != 0) return "";
  const std::vector<std::string> lines = split_at(said.text, '\n');
  return lines.empty() ? "" : split_at(lines.back(), ' ').front();
}

}  // namespace plimsoll
