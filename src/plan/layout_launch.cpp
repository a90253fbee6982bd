#include "plan/layout_launch.h"

#include <fmt/format.h>

#include "formats/launch_files.h"
#include "formats/manual_steps.h"
#include "formats/writer.h"
#include "job/distribution.h"
#include "job/megatron_arguments.h"
#include "util/text.h"

namespace plimsoll {

namespace {

bool is_megatron(const Layout& l) { return l.job.program.megatron.has_value(); }
bool is_torchtitan(const Layout& l) { return l.job.program.torchtitan.has_value(); }
bool is_pytorch(const Layout& l) { return !is_megatron(l) && !is_torchtitan(l); }

// Which setting says how the job is spread.
const char* spread_setting(const Job& job) {
  const ParallelSettings& p = job.parallel;
  return job.program.megatron     ? "megatron"
         : job.program.torchtitan ? "torchtitan"
         : p.fsdp                 ? "fsdp"
         : p.fsdp1                ? "fsdp1"
         : p.deepspeed            ? "zero"
         : p.tensor               ? "tensor_parallel"
         : p.zero1                ? "zero1"
                                  : "ddp";
}

// What was planned, and how it is asked about again.
std::string heading(const Layout& l, const char* what) {
  return fmt::format("# {} over {} devices, {}. Planned as: {}\n", l.job.model, world_size(l.job), what, estimate_command(l));
}

std::string meeting_point(const Job& job, int64_t node) {
  if (world_size(job) <= node) return "";
  return "# on every node; HEAD_NODE is the name of the first\n: \"${HEAD_NODE:?is the name of the first node}\"\n";
}

// Weights in fp32 that FSDP gathers in bf16 are bf16 training to a program's own flags.
Job as_program_sees_it(const Layout& l) {
  Job job = l.job;
  if (job.parallel.fsdp && job.parallel.fsdp->param_dtype == WireType::bf16) job.precision = Precision::amp;
  return job;
}

// What the program itself must do.
std::string in_program(const Layout& l) {
  const std::string spread = manual_step(spread_setting(l.job), l.job);
  if (!l.job.parallel.fsdp || !l.job.parallel.tensor) return spread;
  Job inner = l.job;
  inner.parallel.fsdp.reset();
  return fmt::format("{}, and then {}, each along its dimension of one mesh", manual_step("tensor_parallel", inner), spread);
}

std::string torchrun_text(const Layout& l, int64_t node) {
  std::string text = generate(as_program_sees_it(l), LaunchFile::torchrun, node).text;
  const size_t first = text.find('\n') + 1;  // after #!/bin/bash
  return text.insert(first, heading(l, "started by torchrun") + fmt::format("# in train.py: {}\n", in_program(l)) +
                                (l.job.checkpointing.save.empty() ? "" : fmt::format("# and {}\n", manual_step("checkpointing", l.job))) +
                                meeting_point(l.job, node));
}

// It has words for no checkpoints and for those of every block, and for ZeRO's stages without their other keys.
bool accelerate_says(const Layout& l) {
  const ParallelSettings& p = l.job.parallel;
  const bool plain = !p.deepspeed || p.deepspeed->overlap_comm == (p.deepspeed->stage == 3);
  return is_pytorch(l) && !p.tensor && !p.fsdp1 && !p.zero1 && plain && l.job.checkpointing.save.empty();
}

// accelerate's file for DDP, started as something else.
std::string started_as(Job job, const char* kind, int64_t world, int64_t node) {
  job.parallel = {};
  job.parallel.ddp.emplace().world = world;
  std::string text = generate(job, LaunchFile::accelerate, node).text;
  const std::string ddp = "MULTI_GPU";
  if (const size_t at = text.find(ddp); at != std::string::npos) text.replace(at, ddp.size(), kind);
  return text;
}

// DeepSpeed's bf16, with fp32 copies of its own, is accelerate's mixed precision.
std::string accelerate_with_deepspeed(const Layout& l, int64_t node) {
  Job job = l.job;
  if (job.precision == Precision::bf16) job.precision = Precision::amp;
  const int64_t stage = l.job.parallel.deepspeed->stage;
  return heading(l, "started by accelerate") + started_as(job, "DEEPSPEED", world_size(l.job), node) +
         fmt::format("deepspeed_config:\n  zero_stage: {}\n  gradient_accumulation_steps: {}\n  offload_optimizer_device: none\n", stage,
                     l.job.accumulation) +
         (stage == 3 ? "  offload_param_device: none\n  zero3_init_flag: true\n  zero3_save_16bit_model: true\n" : "");
}

// Keys of FullyShardedDataParallelPlugin. accelerate gathers and reduces in the type of mixed_precision.
std::string accelerate_text(const Layout& l, int64_t node) {
  const auto& f = l.job.parallel.fsdp;
  if (l.job.parallel.deepspeed) return accelerate_with_deepspeed(l, node);
  if (!f) return heading(l, "started by accelerate") + generate(l.job, LaunchFile::accelerate, node).text;
  std::string text = heading(l, "started by accelerate");
  if (f->replicas > 1 || f->reshard_to > 0)
    text += "# copies of the shards, and blocks resharded inside a node, are the program's: ParallelismConfig(dp_replicate_size=...)\n";
  if (f->no_sync) text += "# in train.py: accumulate under accelerator.no_sync(model)\n";
  text += started_as(as_program_sees_it(l), "FSDP", f->world, node);
  text += fmt::format(
      "fsdp_config:\n  fsdp_version: 2\n  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n  fsdp_reshard_after_forward: {}\n"
      "  fsdp_activation_checkpointing: {}\n  fsdp_state_dict_type: SHARDED_STATE_DICT\n",
      f->reshard, l.job.checkpointing.on);
  return text;
}

bool deepspeed_says(const Layout& l) { return l.job.parallel.deepspeed.has_value(); }
std::string deepspeed_text(const Layout& l, int64_t node) { return generate(l.job, LaunchFile::deepspeed, node).text; }

std::string torchtitan_text(const Layout& l, int64_t node) {
  std::string text = heading(l, "started by torchtitan"), section;
  text += fmt::format("# on every node: {} -m torchtitan.train --job.config_file train.toml\n", torchrun_command(world_size(l.job), node));
  for (const TorchtitanKey& k : torchtitan_keys(l)) {
    if (section != k.section) text += fmt::format("{}[{}]\n", section.empty() ? "" : "\n", k.section);
    section = k.section;
    text += fmt::format("{} = {}\n", k.key, k.value.dump());
  }
  return text;
}

std::string torchtitan_line(const Layout& l) {
  std::string line = " -m torchtitan.train";
  for (const TorchtitanKey& k : torchtitan_keys(l))
    line += fmt::format(" --{}.{} {}", k.section, k.key, k.value.is_string() ? k.value.get<std::string>() : k.value.dump());
  return line;
}

std::string wrapped(const std::vector<std::string>& arguments) {
  std::string out;
  for (const std::string& a : arguments) out += " \\\n  " + a;
  return out + "\n";
}

std::string megatron_text(const Layout& l, int64_t node) {
  std::vector<std::string> arguments = megatron_model_arguments(l.job);
  for (std::string& a : megatron_layout_arguments(l.job)) arguments.push_back(std::move(a));
  // Data and tokens that it makes up, so that the script runs as it is.
  for (const char* a : {"--lr 3e-4 --min-lr 3e-5 --lr-decay-style cosine --train-iters 1000", "--mock-data --tokenizer-type NullTokenizer",
                        "--eval-iters 0 --log-interval 1"})
    arguments.emplace_back(a);
  return "#!/bin/bash\n" + heading(l, "in the folder of Megatron-LM") + meeting_point(l.job, node) +
         "export CUDA_DEVICE_MAX_CONNECTIONS=1\n" + torchrun_command(world_size(l.job), node) + " pretrain_gpt.py" + wrapped(arguments);
}

}  // namespace

std::string estimate_command(const Layout& l) {
  Patch all = merged(given_by_flags(l.job), l.changes);
  if (!all.turns_on("checkpointing")) all.erase("checkpointing");
  return fmt::format("plimsoll estimate {} {}", l.job.model, all.flags());
}

std::string launch_line(const Layout& l, int64_t node) {
  const std::string start = torchrun_command(world_size(l.job), node);
  if (is_megatron(l)) return start + " pretrain_gpt.py " + join(megatron_layout_arguments(l.job), " ");
  if (is_torchtitan(l)) return start + torchtitan_line(l);
  return fmt::format("{} train.py, with {}", start, in_program(l));
}

const std::vector<LayoutFile>& layout_files() {
  static const std::vector<LayoutFile> kFiles{
      {"torchrun", is_pytorch, torchrun_text},       {"accelerate", accelerate_says, accelerate_text},
      {"deepspeed", deepspeed_says, deepspeed_text}, {"torchtitan", is_torchtitan, torchtitan_text},
      {"megatron", is_megatron, megatron_text},
  };
  return kFiles;
}

const LayoutFile& layout_file(const std::string& name) {
  std::vector<std::string> known;
  for (const LayoutFile& f : layout_files()) {
    if (name == f.name) return f;
    known.emplace_back(f.name);
  }
  throw Error("[plan] '" + printable(name, 60) + "' is no file of a layout", did_you_mean(name, known), ExitCode::usage);
}

}  // namespace plimsoll
