#include "api/plan.h"

#include <memory>

#include "cli/command.h"
#include "plan/ai_toolkit_document.h"
#include "util/text.h"

namespace plimsoll {

namespace {

struct Flags : AiToolkitRequest {
  std::string rules;
  OutputFlags output;
};

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
  app.add_option("--arch", f->arch, "the toolkit's name of the model: " + join(ai_toolkit::architectures(), ", "))
      ->type_name("NAME")
      ->group(kRun);
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
    check_rules(f->rules);
    return answer(*f, f->output.show());
  };
}

}  // namespace plimsoll
