// Who started this process: a launcher as one of several ranks, or Slurm. A supervisor stands before a launcher, never inside it: inside,
// each rank would decide for itself.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace plimsoll {

using Environment = std::map<std::string, std::string>;
Environment environment_here();

struct RankHere {
  std::string launcher;  // "torchrun", "mpirun", "srun"
  int rank = 0, ranks = 1;
};
// None: this is the only process, or the one that starts the others.
std::optional<RankHere> rank_here(const Environment& environment);

struct SlurmJob {
  std::string id;  // with the task of an array: "12_3"
  int restarts = 0;
};
std::optional<SlurmJob> slurm_job(const Environment& environment);

// Whether the command only puts a job into a queue and ends, as sbatch does.
bool queues_only(const std::vector<std::string>& command);

// How many nodes a launcher's command is one of, where each node has its own (torchrun --nnodes=2 without srun before it); else 1.
int64_t nodes_beside(const std::vector<std::string>& command);

// Gives the job back to Slurm, which starts it again from its beginning. Empty, or why not.
std::string requeue(const SlurmJob& job);
// The state of its newest step by Slurm's accounting: "OUT_OF_MEMORY"; empty when that is not there.
std::string newest_step_state(const SlurmJob& job);

}  // namespace plimsoll
