#include "api/ai_toolkit.h"

#include <algorithm>
#include <cmath>

#include "formats/format.h"
#include "model/resolve.h"
#include "systems/ai_toolkit/report.h"
#include "util/outcome.h"
#include "util/text.h"

namespace plimsoll {

namespace {

using namespace ai_toolkit;

Question question_of(const AiToolkitRequest& f) {
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
  q.gradient_checkpointing = f.checkpointing;
  q.num_workers = f.workers;
  q.batch_size = f.batch;
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
  const auto not_executed = [&](const std::string& why, const std::string& hint) {
    run.why_not = why;
    run.hint = hint;
    return run;
  };
  Outcome<Job> job = outcome_of([&] {
    Job read;
    const Document document = configuration_of(q);
    Reader reader(read, document);
    format_named("ai_toolkit")->read(reader);
    return read;
  });
  if (!job) return not_executed(job.refused->what(), job.refused->hint());
  run.model = job->model;
  if (!is_preset(job->model)) return not_executed("no preset has that name: the architecture is not simulated", "");
  resolve_model(*job);
  Runs runs;
  if (const Attempt tried = runs.attempt(*job); tried.problem) return not_executed(tried.problem->what, tried.problem->hint);
  run.estimate = estimate(runs, *job, 0);
  return run;
}

}  // namespace

const Keys<AiToolkitRequest>& ai_toolkit_keys() {
  using R = AiToolkitRequest;
  constexpr const char* kRun = "The run";
  constexpr const char* kMachine = "The machine";
  constexpr const char* kSetUp = "The set-up's questions";
  static const Keys<R> kKeys{
      {"arch", &R::arch, "NAME", "the toolkit's name of the model: " + join(architectures(), ", "), kRun},
      {"resolution", &R::resolution, "N", "side of the images in pixels (default 1024)", kRun},
      {"images", &R::images, "N", "images of the dataset (default 50)", kRun},
      {"target", &R::target, "NAME", "what is trained: lora, lokr or full", kRun},
      {"quantization", &R::quantization, "NAME", "of the weights: none, 8bit or 4bit", kRun},
      {"batch", &R::batch, "N", "samples of a step (default: as proposed)", kRun},
      {"workers", &R::workers, "N", "workers of the data loader (default: as proposed)", kRun},
      {"checkpointing", &R::checkpointing, "", "with activation checkpointing; --no-checkpointing: without (default: as proposed)", kRun},
      {"ema", &R::ema, "", "with an exponential moving average of the weights", kRun},
      {"dop", &R::dop, "", "with differential output preservation", kRun},
      {"save_every", &R::save_every, "N", "steps between saved checkpoints (default 500)", kRun},
      {"vram", &R::vram, "GB", "memory of the card (default 24)", kMachine},
      {"unified", &R::unified, "GB", "one pool for CPU and GPU instead of --vram", kMachine},
      {"ram", &R::ram, "GB", "memory of the host (default 64, or the pool)", kMachine},
      {"available_ram", &R::available_ram, "GB", "the part of it that is free (default: all)", kMachine},
      {"cores", &R::cores, "N", "cores of the CPU (default 8)", kMachine},
      {"storage", &R::storage, "NAME", "hdd, ssd or nvme", kMachine},
      {"gpu_type", &R::gpu, "NAME", "nvidia, amd, unified_memory or cpu_only", kMachine},
      {"priority", &R::priority, "NAME", "quality, speed or memory_efficiency", kSetUp},
      {"training", &R::training, "NAME", "person, style, object, concept or other", kSetUp},
      {"experience", &R::experience, "NAME", "beginner, intermediate or advanced", kSetUp},
      {"rules_version", &R::version, "V", "v1 to v6 of its file, or a commit (default v3, the document's)", kSetUp}};
  return kKeys;
}

std::vector<RequestKey> ai_toolkit_request_keys() { return described(ai_toolkit_keys()); }

AiToolkitRequest ai_toolkit_request(const nlohmann::json& request) {
  const Config fields = request_of(request, ai_toolkit_request_keys());
  AiToolkitRequest out;
  read_keys(fields, ai_toolkit_keys(), out);
  return out;
}

ExitCode answer(const AiToolkitRequest& request, const Show& show) {
  const Question q = question_of(request);
  const ExecutedRun run = execute(q);
  show([&] { return ai_toolkit_document(q, run); }, [&] { return ai_toolkit_json(q, run); });
  return ExitCode::ok;
}

}  // namespace plimsoll
