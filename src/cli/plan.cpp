#include "api/plan.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <iostream>
#include <memory>

#include "cli/command.h"
#include "cli/device_flags.h"
#include "cli/job_flags.h"
#include "cli/number_between.h"
#include "plan/layout_kinds.h"
#include "plan/space.h"
#include "systems/ai_toolkit/document.h"
#include "util/text.h"

namespace plimsoll {

namespace {

struct PlanFlags {
  JobFlags job;
  DeviceFlags devices;
  SearchRequest search;
  std::string rules;
  AiToolkitRequest toolkit;
  bool uncalibrated = false;
  OutputFlags output;
};

std::string knobs_text() {
  std::string out = "What a plan turns (--keep, --allow):\n";
  for (const Knob& k : knobs()) out += fmt::format("  {:<14} {}{}\n", k.name, k.help, k.asked_for ? " (only with --allow)" : "");
  return out;
}

std::string layout_names() {
  std::vector<std::string> names;
  for (const LayoutKind& k : layout_kinds()) names.emplace_back(k.name);
  return join(names, ", ");
}

// How many candidates were executed, when it takes longer than a blink and somebody looks.
std::function<void(size_t)> progress_line() {
  if (!isatty(STDERR_FILENO)) return {};
  return [start = std::chrono::steady_clock::now()](size_t executed) {
    if (std::chrono::steady_clock::now() - start < std::chrono::milliseconds(500)) return;
    std::cerr << "\r" << executed << " candidates executed " << std::flush;
  };
}

// The rules ask about some of the run's settings in words of their own; the others mean nothing to them.
AiToolkitRequest rules_request(const PlanFlags& f) {
  AiToolkitRequest out = f.toolkit;
  const auto number = [&](const nlohmann::json& value, const std::string& flag) {
    if (!value.is_number())
      throw Error(fmt::format("[plan] {} '{}' is not a number", flag, printable(dump(value), 60)), "e.g. " + flag + " 2", ExitCode::usage);
    return value.get<double>();
  };
  if (!f.job.input.empty() || !f.job.job_file.empty())
    throw Error("[plan] --rules is asked without a run", "the rules know --arch, --resolution and the like", ExitCode::usage);
  for (const auto& [key, setting] : f.job.request().settings) {
    if (key == "batch") {
      out.batch = number(setting.value, "--batch");
    } else if (key == "workers") {
      out.workers = number(setting.value, "--workers");
    } else if (key == "ema") {
      out.ema = setting.value == true;
    } else if (key == "checkpointing") {
      (setting.value == false ? out.no_checkpointing : out.checkpointing) = true;
    } else if (key == "quantization") {
      out.quantization = setting.value.is_string() ? setting.value.get<std::string>() : dump(setting.value);
    } else {
      throw Error(fmt::format("[plan] {} means nothing to the AI Toolkit's rules", setting.origin), "leave it out, or plan without --rules",
                  ExitCode::usage);
    }
  }
  return out;
}

constexpr const char* kGoal = "The goal";
constexpr const char* kCluster = "Many devices";
constexpr const char* kAnswer = "The answer";
constexpr const char* kRules = "Rules of others, with --batch, --workers, --ema, --checkpointing and --quantization 8bit|4bit";

// Rules of others and a search are two questions: a flag of the one says nothing to the other.
void check_flags(const CLI::App& app, bool rules) {
  for (const CLI::Option* o : app.get_options()) {
    const std::string group = o->get_group();
    const bool of_rules = group == kRules && o->get_name() != "--rules";
    const bool of_search = group == kGoal || group == kCluster || group == kAnswer || group == "Devices";
    if (o->count() == 0 || (rules ? !of_search : !of_rules)) continue;
    if (rules)
      throw Error(fmt::format("[plan] {} means nothing to --rules", o->get_name()), "leave it out, or plan without --rules",
                  ExitCode::usage);
    throw Error(fmt::format("[plan] {} is for --rules ai-toolkit", o->get_name()),
                o->get_name() == "--unified" ? "a device whose memory is the host's is named: --gpu gb10; RAM is --host-memory"
                                             : "name a device (--gpu rtx-4090 or --gpu 24GiB), or ask the rules: --rules ai-toolkit",
                ExitCode::usage);
  }
}

// "120" or "120GB", as the rules count.
CLI::Validator gigabytes() {
  return CLI::Validator(
      [](std::string& text) -> std::string {
        const std::string given = text;
        if (text.ends_with("GB")) text.resize(text.size() - 2);
        char* end = nullptr;
        const double value = std::strtod(text.c_str(), &end);
        return !text.empty() && *end == '\0' && value > 0 && value < 1e6 ? "" : fmt::format("'{}' is no number of GB, e.g. 120", given);
      },
      "", "gigabytes");
}

void add_rules_to(CLI::App& app, PlanFlags& f) {
  const char* group = kRules;
  AiToolkitRequest& t = f.toolkit;
  app.add_option("--rules", f.rules, "what the rules of others answer instead: ai-toolkit")->type_name("NAME")->group(group);
  app.add_option("--arch", t.arch, "the toolkit's name of the model: " + join(ai_toolkit::architectures(), ", "))
      ->type_name("NAME")
      ->group(group);
  app.add_option("--resolution", t.resolution, "side of the images in pixels (default 1024)")->type_name("N")->group(group);
  app.add_option("--images", t.images, "images of the dataset (default 50)")->type_name("N")->group(group);
  app.add_option("--target", t.target, "lora, lokr or full")->type_name("NAME")->group(group);
  app.add_option("--save-every", t.save_every, "steps between checkpoints (default 500)")->type_name("N")->group(group);
  app.add_flag("--dop", t.dop, "with differential output preservation")->group(group);
  app.add_flag("--no-checkpointing", t.no_checkpointing, "without gradient checkpointing (default: as proposed)")->group(group);
  app.add_option("--vram", t.vram, "GB of the card (default 24)")->transform(gigabytes())->type_name("GB")->group(group);
  app.add_option("--unified", t.unified, "one pool for CPU and GPU, in place of --vram")
      ->transform(gigabytes())
      ->type_name("GB")
      ->group(group);
  app.add_option("--ram", t.ram, "of the host (default 64, or the pool)")->transform(gigabytes())->type_name("GB")->group(group);
  app.add_option("--available-ram", t.available_ram, "what is free of it (default: all)")
      ->transform(gigabytes())
      ->type_name("GB")
      ->group(group);
  app.add_option("--cores", t.cores, "of the CPU (default 8)")->type_name("N")->group(group);
  app.add_option("--storage", t.storage, "hdd, ssd or nvme")->type_name("NAME")->group(group);
  app.add_option("--gpu-type", t.gpu, "nvidia, amd, unified_memory or cpu_only")->type_name("NAME")->group(group);
  app.add_option("--priority", t.priority, "quality, speed or memory_efficiency")->type_name("NAME")->group(group);
  app.add_option("--training", t.training, "person, style, object, concept or other")->type_name("NAME")->group(group);
  app.add_option("--experience", t.experience, "beginner, intermediate or advanced")->type_name("NAME")->group(group);
  app.add_option("--rules-version", t.version, "v1 to v6 of its file, or a commit (default v3, the document's)")
      ->type_name("V")
      ->group(group);
}

}  // namespace

std::function<ExitCode()> set_up_plan(CLI::App& app) {
  auto f = std::make_shared<PlanFlags>();
  app.footer(
      "Examples:\n"
      "  plimsoll plan llama-3.1-8b --gpu rtx-4090                      the fastest recipe that fits\n"
      "  plimsoll plan train.yaml --gpu rtx-4090 --keep precision       without touching the precision\n"
      "  plimsoll plan train.yaml --gpu rtx-4090 --diff                 what to change in the file\n"
      "  plimsoll plan train.yaml --gpu rtx-4090 --write smaller.yaml   the file with the changes\n"
      "  python train.py $(plimsoll plan --gpu this --flags -- python train.py)\n"
      "  plimsoll plan gpt2-xl --batch 64 --gpus all                    settings for every device\n"
      "  plimsoll plan gpt2-xl --matrix gpu=rtx-4090,a100-80gb,batch=1,2,4,8\n"
      "  plimsoll plan llama-3.1-405b --gpu h100-sxm --world 1024       layouts over many devices\n"
      "  plimsoll plan --rules ai-toolkit --arch flux --resolution 1024 --vram 24\n" +
      knobs_text() +
      "A batch that is given is kept as the total: micro-batch and accumulation change. Without one it is free. Times are estimates\n"
      "(docs/time.md).\n"
      "Exit codes: 0 a plan was found, 3 nothing that may be changed makes it fit, 2 wrong usage, 5 input not understood, 6 no GPU here\n"
      "and none named, 1 a bug.");
  f->job.add_input_to(app);
  app.add_option("--goal", f->search.goal, "throughput (default), memory, batch, sequence or gpus (as few as will do)")
      ->type_name("NAME")
      ->group(kGoal);
  app.add_option("--keep", f->search.keep, "knobs that stay as they are (see below)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("KNOB,...")
      ->group(kGoal);
  app.add_option("--allow", f->search.allow, "knobs that may be turned, too: seq, model")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("KNOB,...")
      ->group(kGoal);
  app.add_option("--total-batch", f->search.total_batch, "samples of an optimizer step, all devices together")
      ->check(above_zero())
      ->type_name("N")
      ->group(kGoal);
  app.add_option("--num-gpus", f->search.num_gpus, "devices there are: DDP, ZeRO-1 to -3, and FSDP2 are tried")
      ->check(above_zero())
      ->type_name("N")
      ->group(kGoal);
  app.add_option("--world", f->search.world, "the fastest layouts over so many devices, of PyTorch, DeepSpeed, torchtitan and Megatron-LM")
      ->check(above_zero())
      ->type_name("N")
      ->group(kCluster);
  app.add_option("--layouts", f->search.layouts, "only these kinds: " + layout_names())
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("KIND,...")
      ->group(kCluster);
  app.add_option("--node", f->search.node, "devices of one node (default 8)")->check(above_zero())->type_name("N")->group(kCluster);
  app.add_option("--network", f->search.network, "what a device reaches other nodes with, in GB/s (default 40: a 400 Gb/s adapter each)")
      ->check(above_zero())
      ->type_name("GB/S")
      ->group(kCluster);
  app.add_option("--leave-free", f->search.leave_free, "part of the device to leave free, beside the interval, e.g. 0.1")
      ->check(number_between(0, 0.99))
      ->type_name("PART")
      ->group(kGoal);
  app.add_option("--host-memory", f->search.host_memory, "RAM of the machine: does the plan fit there, too, and with how many workers?")
      ->type_name("BYTES")
      ->group(kGoal);
  app.add_option("--step-time", f->search.step_time, "seconds that a step of the run as it is takes on your machine: times are tied to it")
      ->check(above_zero())
      ->type_name("SECONDS")
      ->group(kGoal);
  app.add_flag("--no-calibration", f->uncalibrated, "leave out what `plimsoll watch` timed of like runs on this machine")->group(kGoal);
  app.add_flag("--flags", f->search.flags, "only what changes, as flags of the trainer, on one line")->group(kAnswer);
  app.add_flag("--diff", f->search.diff, "what changes in the file or script")->group(kAnswer);
  app.add_option("--write", f->search.write, "write the file with the changes; comments and all else stay")
      ->type_name("FILE")
      ->group(kAnswer);
  app.add_option("--generate", f->search.generate,
                 "a fresh file for the plan: deepspeed, accelerate, torchrun, training_arguments, ai_toolkit; with --world torchtitan and "
                 "megatron, too")
      ->type_name("KIND")
      ->group(kAnswer);
  app.add_flag("--full", f->search.full, "every candidate executed in full, even where that takes seconds each");
  app.add_option("--matrix", f->search.matrix, "need and verdict for all combinations, instead of a plan")
      ->type_name("KEY=A,B,KEY=...")
      ->group(kAnswer);
  f->devices.add_to(app);
  f->output.add_to(app);
  f->job.add_to(app);
  add_rules_to(app, *f);
  return [f, &app] {
    check_flags(app, !f->rules.empty());
    if (!f->rules.empty()) {
      check_rules(f->rules);
      return answer(rules_request(*f), f->output.show());
    }
    SearchRequest request = f->search;
    request.job = f->job.request();
    request.devices = f->devices;
    request.calibrated = !f->uncalibrated;
    request.progress = progress_line();
    // Wiped before anything else is said, be it an error.
    const auto wipe = [shown = static_cast<bool>(request.progress)] {
      if (shown) std::cerr << "\r\033[K";
    };
    const Show show = f->output.show();
    try {
      return answer(request, [&](const auto& text, const auto& json) {
        wipe();
        show(text, json);
      });
    } catch (...) {
      wipe();
      throw;
    }
  };
}

}  // namespace plimsoll
