// Fresh files for a job whose user has none: a launcher's configuration, arguments of the HF Trainer, a command, the AI Toolkit's YAML.
// Each is a short text with defaults into which the job's settings are written as into anyone's file (job/writer.h), so that it reads as
// the job.
#pragma once

#include <string>
#include <vector>

#include "job/writer.h"

namespace plimsoll {

enum class LaunchFile : uint8_t { deepspeed, accelerate, torchrun, training_arguments, ai_toolkit };

struct LaunchFileKind {
  LaunchFile kind;
  const char* name;       // "deepspeed"
  const char* file_name;  // "ds_config.json"; the command: "train.sh"
};
const std::vector<LaunchFileKind>& launch_files();
LaunchFile parse_launch_file(const std::string& name);  // an Error lists what is known

// What of the job has no word there is in not_written; in job, what the text is read as.
Rewritten generate(const Job& job, LaunchFile kind);

}  // namespace plimsoll
