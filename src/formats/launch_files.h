// Fresh files for a job whose user has none: a launcher's configuration, arguments of the HF Trainer, a command, the AI Toolkit's YAML.
// Each is a short text with defaults into which the job's settings are written as into anyone's file (job/writer.h), so that it reads as
// the job.
#pragma once

#include <string>
#include <vector>

#include "formats/writer.h"

namespace plimsoll {

enum class LaunchFile : uint8_t { deepspeed, accelerate, torchrun, training_arguments, ai_toolkit };

struct LaunchFileKind {
  LaunchFile kind;
  const char* name;       // "deepspeed"
  const char* file_name;  // "ds_config.json"; the command: "train.sh"
};
const std::vector<LaunchFileKind>& launch_files();
LaunchFile parse_launch_file(const std::string& name);  // an Error lists what is known

constexpr int64_t kDevicesOfNode = 8;  // as most machines for training have

// The text with defaults, which a reader knows. Throws an Error where the kind is not for that model.
std::string launch_template(const Job& job, LaunchFile kind, int64_t node);

// What of the job has no word there is in not_written; in job, what the text is read as. `node`: devices of one machine.
Rewritten generate(const Job& job, LaunchFile kind, int64_t node = kDevicesOfNode);

// "torchrun --nproc_per_node=8", or with the number of nodes and where they meet; python for one process.
std::string torchrun_command(int64_t world, int64_t node);

}  // namespace plimsoll
