#include "formats/launch_files.h"

#include <fmt/format.h>

#include "formats/format.h"
#include "formats/input.h"
#include "job/distribution.h"
#include "job/settings.h"
#include "util/text.h"

namespace plimsoll {

namespace {

using Json = nlohmann::json;

constexpr const char* kDeepSpeed = R"({
    "train_micro_batch_size_per_gpu": 1,
    "gradient_accumulation_steps": 1,
    "zero_optimization": {
        "stage": 0
    }
}
)";

constexpr const char* kAccelerate = R"(compute_environment: LOCAL_MACHINE
distributed_type: 'NO'
mixed_precision: 'no'
num_machines: 1
num_processes: 1
machine_rank: 0
main_training_function: main
)";

constexpr const char* kArguments = R"({
  "output_dir": "out",
  "num_train_epochs": 1,
  "per_device_train_batch_size": 8
}
)";

constexpr const char* kTrlArguments = R"({
  "output_dir": "out",
  "num_train_epochs": 1,
  "packing": false,
  "per_device_train_batch_size": 8
}
)";

constexpr const char* kCommand = R"(#!/bin/bash
{} train.py \
  --output_dir out \
  --per_device_train_batch_size 8
)";

constexpr const char* kAiToolkit = R"(job: extension
config:
  name: run
  process:
    - type: sd_trainer
      training_folder: output
      device: cuda:0
      datasets:
        - folder_path: /path/to/images
          caption_ext: txt
          resolution: [512]
      train:
        batch_size: 1
        steps: 2000
        lr: 1e-4
      model:
        name_or_path: /path/to/model
        arch: {}
)";
constexpr const char* kAiToolkitNetwork = R"(      network:
        type: {}
        linear: 4
        linear_alpha: 1
)";

// num_processes counts those of all machines; each machine says its own rank.
std::string accelerate_template(const Job& job, int64_t node) {
  const int64_t machines = (world_size(job) + node - 1) / node;
  std::string text = kAccelerate;
  const char* type = job.precision == Precision::amp ? "bf16" : job.precision == Precision::amp_fp16 ? "fp16" : "'no'";
  text.replace(text.find("mixed_precision: 'no'") + 17, 4, type);
  if (machines < 2) return text;
  text.replace(text.find("num_machines: 1"), 15, fmt::format("num_machines: {}", machines));
  return "# on every machine: accelerate launch --config_file accelerate.yaml --machine_rank 0..N --main_process_ip HEAD train.py\n" + text;
}

// Autocast is the trainer's, also where the type of the weights is the program's own.
std::string arguments_template(const Job& job) {
  std::string text = job.trainer == "TRL" ? kTrlArguments : kArguments;
  if (!job.clip) text.insert(text.find("  \"per_device"), "  \"max_grad_norm\": 0,\n");
  if (job.precision == Precision::bf16 && job.autocast) text.insert(text.find("  \"per_device"), "  \"bf16\": true,\n");
  return text;
}

// A setting that is off has no value to be applied.
bool is_off(const Json& value) { return value.is_null() || value == 0; }

}  // namespace

const std::vector<LaunchFileKind>& launch_files() {
  static const std::vector<LaunchFileKind> kFiles{{LaunchFile::deepspeed, "deepspeed", "ds_config.json"},
                                                  {LaunchFile::accelerate, "accelerate", "accelerate.yaml"},
                                                  {LaunchFile::torchrun, "torchrun", "train.sh"},
                                                  {LaunchFile::training_arguments, "training_arguments", "training_args.json"},
                                                  {LaunchFile::ai_toolkit, "ai_toolkit", "ai_toolkit.yaml"}};
  return kFiles;
}

LaunchFile parse_launch_file(const std::string& name) {
  std::vector<std::string> known;
  for (const LaunchFileKind& f : launch_files()) {
    known.emplace_back(f.name);
    if (name == f.name) return f.kind;
  }
  throw Error("[launch] '" + printable(name, 60) + "' is no file that can be written", did_you_mean(name, known));
}

std::string launch_template(const Job& job, LaunchFile kind, int64_t node) {
  const std::string arch = job.model.starts_with("ai-toolkit-") ? job.model.substr(11) : "";
  switch (kind) {
    case LaunchFile::deepspeed: return kDeepSpeed;
    case LaunchFile::accelerate: return accelerate_template(job, node);
    case LaunchFile::training_arguments: return arguments_template(job);
    case LaunchFile::torchrun: return fmt::format(fmt::runtime(kCommand), torchrun_command(world_size(job), node));
    case LaunchFile::ai_toolkit:
      if (arch.empty())
        throw Error(fmt::format("[ai_toolkit] '{}' is no model of the AI Toolkit", printable(job.model, 60)),
                    "its models are presets like ai-toolkit-flux (plimsoll list presets)");
      return fmt::format(fmt::runtime(kAiToolkit), arch) +
             (job.tuning.adapter ? fmt::format(fmt::runtime(kAiToolkitNetwork), to_string(job.tuning.adapter->kind)) : std::string());
  }
  return "";
}

std::string torchrun_command(int64_t world, int64_t node) {
  if (world == 1) return "python";
  const int64_t nodes = (world + node - 1) / node;
  if (nodes == 1) return fmt::format("torchrun --nproc_per_node={}", world);
  return fmt::format("torchrun --nnodes={} --nproc_per_node={} --rdzv_backend=c10d --rdzv_endpoint=$HEAD_NODE:29500", nodes, node);
}

Rewritten generate(const Job& job, LaunchFile kind, int64_t node) {
  const LaunchFileKind& file = launch_files()[static_cast<size_t>(kind)];
  const Document document = parse_document(launch_template(job, kind, node), file.file_name);
  const Format* format =
      format_named(kind == LaunchFile::training_arguments || kind == LaunchFile::torchrun ? "hf_training_arguments" : file.name);
  Job plain;
  plain.platform = job.platform;
  read_input_document(plain, document);
  Patch changes;
  for (const KeyEncoder& k : format->writes().keys) {
    if (std::string(k.setting).starts_with("fsdp")) continue;  // said by who plans layouts
    const Json value = value_of(job, k.setting);
    if (!is_off(value) && value != value_of(plain, k.setting) && std::string(k.setting) != "config") changes.set(k.setting, value);
  }
  if (!job.alloc_conf.empty()) changes.set("alloc_conf", job.alloc_conf);
  return rewrite(document, job, changes);
}

}  // namespace plimsoll
