#include "formats/generated_run.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <utility>

#include "formats/command_line.h"
#include "formats/format.h"
#include "formats/input.h"
#include "job/distribution.h"
#include "job/settings.h"
#include "util/shell.h"
#include "util/text.h"

namespace plimsoll {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kSpreads[]{"fsdp", "fsdp1", "zero", "zero1", "ddp"};

bool is_spread(const std::string& setting) { return std::find(std::begin(kSpreads), std::end(kSpreads), setting) != std::end(kSpreads); }

// A file while it is read by the command that names it.
class ScratchFile {
 public:
  ScratchFile(const std::string& name, const std::string& text) {
    static std::atomic<int> count{0};
    folder_ = fs::temp_directory_path() / fmt::format("plimsoll-{}-{}", ::getpid(), count++);
    fs::create_directories(folder_);
    path_ = (folder_ / name).string();
    std::ofstream(path_, std::ios::binary) << text;
  }
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;
  ~ScratchFile() {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  fs::path folder_;
  std::string path_;
};

// Launchers say how many processes there are and how weights are shared out; the rest of it is the trainer's own choice.
Job in_launchers_words(Job job) {
  ParallelSettings& p = job.parallel;
  if (p.ddp) apply_setting(job, "ddp", {{"world", p.ddp->world}}, "plan");
  if (p.fsdp && p.fsdp->replicas == 1 && p.fsdp->reshard_to == 0)
    apply_setting(job, "fsdp", {{"world", p.fsdp->world}, {"reshard", p.fsdp->reshard}}, "plan");
  return job;
}

// What the format has words for and the text does not say yet.
Patch missing_in(const Job& now, const Job& job, const SettingsEncoder& writes, bool spreads) {
  Patch out;
  const std::string spread = spread_of(job);
  for (const KeyEncoder& k : writes.keys) {
    const std::string setting = k.setting;
    if (setting == "config" || (is_spread(setting) && (!spreads || setting != spread))) continue;
    const Json value = value_of(job, setting);
    if (!value.is_null() && value != 0 && value != value_of(now, setting)) out.set(setting, value);
  }
  return out;
}

Job read_alone(const Document& document, const Job& job) {
  Job out;
  out.platform = job.platform;
  read_input_document(out, document);
  return out;
}

// Autocast is the trainer's, also where the type of the weights is the program's own.
bool wants_autocast(const Job& job) { return job.precision == Precision::amp || job.autocast; }

std::string base_arguments(const Job& job) {
  std::string out = fmt::format(" train.py --output_dir out --per_device_train_batch_size {}", job.batch);
  if (job.trainer == "TRL") out += " --packing false";
  if (!job.clip) out += " --max_grad_norm 0";
  return out + (wants_autocast(job) ? " --bf16 true" : "");
}

// A flag a line, behind the program.
std::string script_of(const std::string& command) {
  const std::string program = " train.py", line_end = " \\\n  ";
  std::string out = "#!/bin/bash\n" + command + "\n";
  for (size_t at = out.find(program); at != std::string::npos && (at = out.find(" --", at)) != std::string::npos; at += line_end.size())
    out.replace(at, 1, line_end);
  return out;
}

void take(GeneratedRun& out, const Rewritten& text) {
  out.job = text.job;
  out.environment = text.environment;
  out.not_written = text.not_written;
}

// The flags of the trainer behind what starts it.
void write_command(GeneratedRun& out, const Job& job, const std::string& command) {
  const Document document = command_document(shell_words(command));
  Job now;
  now.platform = job.platform;
  read_input(now, shell_words(command));
  const SettingsEncoder& writes = format_named("hf_training_arguments")->writes();
  Patch changes = missing_in(now, job, writes, spread_of(now) != spread_of(job));
  if (!job.alloc_conf.empty()) changes.set("alloc_conf", job.alloc_conf);
  const Rewritten text = rewrite(document, now, changes);
  take(out, text);
  out.command = text.text;
  for (const KeyEncoder& k : writes.keys) out.said.insert(k.setting);
}

void write_launcher_file(GeneratedRun& out, const Job& job, LaunchFile kind, int64_t node) {
  const LaunchFileKind& file = launch_files()[static_cast<size_t>(kind)];
  const Document document = parse_document(launch_template(job, kind, node), file.file_name);
  const SettingsEncoder& writes = format_named(file.name)->writes();
  const Rewritten text = rewrite(document, job, missing_in(read_alone(document, job), job, writes, true));
  out.text = text.text;
  out.written = text.written;
  const ScratchFile scratch(file.file_name, text.text);
  const int64_t here = std::min(world_size(job), node), nodes = (world_size(job) + node - 1) / node;
  const std::string start = kind == LaunchFile::accelerate ? fmt::format("accelerate launch --config_file {}", shell_quoted(scratch.path()))
                            : nodes > 1                    ? fmt::format("deepspeed --num_nodes {} --num_gpus {}", nodes, here)
                                                           : fmt::format("deepspeed --num_gpus {}", here);
  const std::string named = kind == LaunchFile::deepspeed ? fmt::format(" --deepspeed {}", shell_quoted(scratch.path())) : "";
  const bool half = kind == LaunchFile::deepspeed && job.precision == Precision::bf16;  // its bf16 and the trainer's must agree
  write_command(out, job, start + base_arguments(job) + (half && !wants_autocast(job) ? " --bf16 true" : "") + named);
  for (const KeyEncoder& k : writes.keys) {
    out.said.insert(k.setting);
    std::erase_if(out.not_written,
                  [&](const NotWritten& n) { return n.setting == k.setting && value_of(out.job, k.setting) == value_of(job, k.setting); });
  }
  for (size_t at = 0; (at = out.command.find(scratch.path(), at)) != std::string::npos;)
    out.command.replace(at, scratch.path().size(), file.file_name);
}

void write_arguments_file(GeneratedRun& out, const Job& job, int64_t node) {
  const char* kName = launch_files()[static_cast<size_t>(LaunchFile::training_arguments)].file_name;
  std::string text = launch_template(job, LaunchFile::training_arguments, node);
  const std::string start = torchrun_command(world_size(job), node) + " train.py ";
  // Read through the command, so that the number of processes is known to what is written.
  const SettingsEncoder& writes = format_named("hf_training_arguments")->writes();
  const auto read_started = [&](const std::string& content) {
    const ScratchFile scratch(kName, content);
    Job now;
    now.platform = job.platform;
    read_input(now, shell_words(start + shell_quoted(scratch.path())));
    return now;
  };
  Job now = read_started(text);
  const Document document = parse_document(text, kName);
  Patch changes = missing_in(now, job, writes, spread_of(now) != spread_of(job));
  if (!job.alloc_conf.empty()) changes.set("alloc_conf", job.alloc_conf);
  const Rewritten file = rewrite(document, now, changes);
  take(out, file);
  out.text = file.text;
  out.written = file.written;
  out.job = read_started(file.text);
  if (!job.alloc_conf.empty()) apply_setting(out.job, "alloc_conf", job.alloc_conf, "environment");
  out.command = start + kName;
  for (const KeyEncoder& k : writes.keys) out.said.insert(k.setting);
}

}  // namespace

std::string spread_of(const Job& job) {
  const ParallelSettings& p = job.parallel;
  return p.fsdp ? "fsdp" : p.fsdp1 ? "fsdp1" : p.deepspeed ? "zero" : p.zero1 ? "zero1" : p.ddp && p.ddp->world > 1 ? "ddp" : "";
}

GeneratedRun generate_run(const Job& wanted, LaunchFile kind, int64_t node) {
  const Job job = in_launchers_words(wanted);
  GeneratedRun out;
  if (kind == LaunchFile::ai_toolkit) {
    const Rewritten file = generate(job, kind, node);
    take(out, file);
    out.text = file.text;
    out.written = file.written;
    out.command = "python run.py ai_toolkit.yaml";
    for (const KeyEncoder& k : format_named("ai_toolkit")->writes().keys) out.said.insert(k.setting);
  } else if (kind == LaunchFile::training_arguments) {
    write_arguments_file(out, job, node);
  } else if (kind == LaunchFile::torchrun) {
    write_command(out, job, torchrun_command(world_size(job), node) + base_arguments(job));
    out.text = script_of(std::exchange(out.command, "bash train.sh"));
    out.job = read_alone(parse_document(out.text, "train.sh"), job);
  } else {
    write_launcher_file(out, job, kind, node);
  }
  out.said.insert(std::begin(kSpreads), std::end(kSpreads));
  out.said.insert("alloc_conf");
  for (const auto& [setting, origin] : out.job.origin)  // nor does the program decide about what the trainer always does
    if (origin.starts_with("default of") && find_setting(setting) && value_of(out.job, setting) == true) out.said.insert(setting);
  for (const NotWritten& n : out.not_written) out.said.erase(n.setting);
  return out;
}

Job as_started(const Job& job, const GeneratedRun& run) {
  Patch changes;
  for (const std::string& setting : run.said)
    if (setting != "config" && setting != "seq" && value_of(run.job, setting) != value_of(job, setting))
      changes.set(setting, value_of(run.job, setting));
  return patched(job, changes, "generated");
}

}  // namespace plimsoll
