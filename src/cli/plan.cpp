#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "job/formats/format.h"
#include "model/resolve.h"
#include "report/ai_toolkit_report.h"
#include "util/text.h"

namespace plimsoll {

namespace {

using namespace ai_toolkit;

struct Flags {
  std::string rules;
  std::string version = "v3", arch = "flux", quantization = "none", target = "lora", priority = "quality", training = "other",
              experience = "intermediate", storage = "ssd", gpu = "nvidia";
  double resolution = 1024, vram = 24, unified = 0, ram = 0, available_ram = 0, cores = 8, images = 50, save_every = 500, workers = -1,
         batch = -1;
  bool ema = false, dop = false, checkpointing = false, no_checkpointing = false;
  OutputFlags output;
};

Question question_of(const Flags& f) {
  Question q;
  q.version = parse_version(f.version);
  q.arch = f.arch;
  q.resolution = f.resolution;
  q.images = f.images;
  q.save_every = f.save_every;
  q.target = parse_target_type(f.target);
  q.quantization = ai_toolkit::parse_quantization(f.quantization);
  q.intent = {parse_training_type(f.training), parse_priority(f.priority), parse_experience(f.experience)};
  q.profile.storage = parse_storage_type(f.storage);
  q.profile.gpu = parse_gpu_type(f.gpu);
  q.profile.cores = f.cores;
  q.profile.unified = f.unified > 0 || q.profile.gpu == GpuType::unified_memory;
  q.profile.unified_memory = f.unified;
  q.profile.total_ram = f.ram != 0 ? f.ram : f.unified > 0 ? f.unified : 64;
  q.profile.available_ram = f.available_ram != 0 ? f.available_ram : q.profile.total_ram;
  q.profile.vram_gb = q.profile.unified ? q.profile.pool() : f.vram;
  if (q.profile.unified) q.profile.gpu = GpuType::unified_memory;
  q.ema = f.ema;
  q.diff_output_preservation = f.dop;
  if (f.checkpointing || f.no_checkpointing) q.gradient_checkpointing = f.checkpointing;
  if (f.workers != -1) q.num_workers = f.workers;
  if (f.batch != -1) q.batch_size = f.batch;
  check(q);
  return q;
}

// What the set-up would write, in the toolkit's own format: the executed answer reads it as it reads a user's file.
Document configuration_of(const Question& q) {
  const CodeAnswer a = code_answer(q);
  const SmartDefaults& d = a.defaults;
  nlohmann::json process{{"type", "sd_trainer"},
                         {"model", {{"arch", q.arch}}},
                         {"train",
                          {{"batch_size", std::llround(a.batch_size)},
                           {"gradient_accumulation_steps", d.gradient_accumulation_steps},
                           {"optimizer", d.optimizer},
                           {"dtype", d.dtype},
                           {"gradient_checkpointing", a.gradient_checkpointing},
                           {"diff_output_preservation", q.diff_output_preservation},
                           {"ema_config", {{"use_ema", q.ema}}}}},
                         {"datasets", nlohmann::json::array({{{"resolution", {std::llround(q.resolution), std::llround(q.resolution)}},
                                                              {"cache_latents", d.cache.cache_latents},
                                                              {"cache_latents_to_disk", d.cache.cache_latents_to_disk},
                                                              {"num_workers", std::llround(a.num_workers)}}})}};
  if (q.target != TargetType::full)
    process["network"] = {{"type", to_string(q.target)}, {"linear", d.lora.rank}, {"linear_alpha", d.lora.alpha}};
  if (q.quantization != Quantization::none) {
    process["model"]["quantize"] = true;
    process["model"]["qtype"] = q.quantization == Quantization::four_bit ? "uint4" : "qfloat8";
  }
  Document document;
  document.name = "the set-up's configuration";
  document.kind = Document::Kind::yaml;
  document.value = {{"config", {{"process", nlohmann::json::array({process})}}}};
  return document;
}

bool is_preset(const std::string& name) {
  return std::any_of(presets().begin(), presets().end(), [&](const Preset& p) { return name == p.name; });
}

ExecutedRun execute(const Question& q) {
  ExecutedRun run;
  run.model = "ai-toolkit-" + q.arch;
  try {
    Job job;
    const Document document = configuration_of(q);
    Reader reader(job, document);
    format_named("ai_toolkit")->read(reader);
    run.model = job.model;
    if (!is_preset(job.model)) throw Error("no preset has that name: the architecture is not simulated");
    resolve_model(job);
    run.estimate = estimate(job, 0);
  } catch (const Error& e) {
    run.why_not = e.what();
    run.hint = e.hint();
  }
  return run;
}

}  // namespace

std::function<ExitCode()> set_up_plan(CLI::App& app) {
  auto f = std::make_shared<Flags>();
  app.footer(
      "Examples:\n"
      "  plimsoll plan --rules ai-toolkit --arch flux --resolution 1024 --vram 24\n"
      "  plimsoll plan --rules ai-toolkit --arch qwen_image --resolution 2048 --unified 120 --workers 2 --ema\n"
      "What the rules of others answer, what their documents say instead, and what an execution of the same run gives.\n"
      "Exit codes: 0 done, 2 wrong usage, 5 input not understood, 1 a bug.");
  app.add_option("--rules", f->rules, "whose rules: ai-toolkit")->type_name("NAME");
  constexpr const char* kRun = "The run";
  app.add_option("--arch", f->arch, "the toolkit's name of the model: " + join(architectures(), ", "))->type_name("NAME")->group(kRun);
  app.add_option("--resolution", f->resolution, "side of the images in pixels (default 1024)")->type_name("N")->group(kRun);
  app.add_option("--images", f->images, "images of the dataset (default 50)")->type_name("N")->group(kRun);
  app.add_option("--target", f->target, "lora, lokr or full")->type_name("NAME")->group(kRun);
  app.add_option("--quantization", f->quantization, "none, 8bit or 4bit")->type_name("NAME")->group(kRun);
  app.add_option("--batch", f->batch, "the batch that memory is estimated for (default: the one proposed)")->type_name("N")->group(kRun);
  app.add_option("--workers", f->workers, "DataLoader workers (default: as proposed)")->type_name("N")->group(kRun);
  app.add_option("--save-every", f->save_every, "steps between checkpoints (default 500)")->type_name("N")->group(kRun);
  app.add_flag("--ema", f->ema, "with EMA")->group(kRun);
  app.add_flag("--dop", f->dop, "with differential output preservation")->group(kRun);
  auto* on = app.add_flag("--checkpointing", f->checkpointing, "with gradient checkpointing (default: as proposed)")->group(kRun);
  app.add_flag("--no-checkpointing", f->no_checkpointing, "without")->group(kRun)->excludes(on);
  constexpr const char* kMachine = "The machine, in GB";
  app.add_option("--vram", f->vram, "of the card (default 24)")->type_name("GB")->group(kMachine);
  app.add_option("--unified", f->unified, "one pool for CPU and GPU, in place of --vram")->type_name("GB")->group(kMachine);
  app.add_option("--ram", f->ram, "of the host (default 64, or the pool)")->type_name("GB")->group(kMachine);
  app.add_option("--available-ram", f->available_ram, "what is free of it (default: all)")->type_name("GB")->group(kMachine);
  app.add_option("--cores", f->cores, "of the CPU (default 8)")->type_name("N")->group(kMachine);
  app.add_option("--storage", f->storage, "hdd, ssd or nvme")->type_name("NAME")->group(kMachine);
  app.add_option("--gpu-type", f->gpu, "nvidia, amd, unified_memory or cpu_only")->type_name("NAME")->group(kMachine);
  constexpr const char* kIntent = "The user, as the toolkit asks";
  app.add_option("--priority", f->priority, "quality, speed or memory_efficiency")->type_name("NAME")->group(kIntent);
  app.add_option("--training", f->training, "person, style, object, concept or other")->type_name("NAME")->group(kIntent);
  app.add_option("--experience", f->experience, "beginner, intermediate or advanced")->type_name("NAME")->group(kIntent);
  app.add_option("--rules-version", f->version, "v1 to v6 of its file, or a commit (default v3, the document's)")->type_name("V");
  f->output.add_to(app);
  return [f] {
    if (f->rules.empty())
      throw Error("[plan] whose rules are asked for is not said",
                  "--rules ai-toolkit; for a plan of your own run: plimsoll estimate RUN --what-if", ExitCode::usage);
    if (f->rules != "ai-toolkit")
      throw Error("[plan] rules '" + f->rules + "' are not known", did_you_mean(f->rules, {"ai-toolkit"}), ExitCode::usage);
    const Question q = question_of(*f);
    const ExecutedRun run = execute(q);
    std::cout << (f->output.json ? dump(ai_toolkit_json(q, run), 2) + "\n"
                                 : ai_toolkit_text(q, run, Style::detect(f->output.colour, f->output.ascii)));
    return ExitCode::ok;
  };
}

}  // namespace plimsoll
