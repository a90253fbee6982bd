#include "api/ai_toolkit_plan.h"

#include <algorithm>
#include <cmath>

#include "formats/format.h"
#include "model/resolve.h"
#include "systems/ai_toolkit/report.h"

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

AiToolkitRequest ai_toolkit_request(const nlohmann::json& request) {
  AiToolkitRequest out;
  const std::pair<const char*, std::string*> texts[] = {
      {"rules_version", &out.version}, {"arch", &out.arch},         {"quantization", &out.quantization},
      {"target", &out.target},         {"priority", &out.priority}, {"training", &out.training},
      {"experience", &out.experience}, {"storage", &out.storage},   {"gpu_type", &out.gpu}};
  const std::pair<const char*, double*> numbers[] = {{"resolution", &out.resolution},
                                                     {"vram", &out.vram},
                                                     {"unified", &out.unified},
                                                     {"ram", &out.ram},
                                                     {"available_ram", &out.available_ram},
                                                     {"cores", &out.cores},
                                                     {"images", &out.images},
                                                     {"save_every", &out.save_every},
                                                     {"workers", &out.workers},
                                                     {"batch", &out.batch}};
  const std::pair<const char*, bool*> switches[] = {{"ema", &out.ema}, {"dop", &out.dop}};
  std::vector<std::string> keys{"rules", "checkpointing"};
  for (const auto& [key, value] : texts) keys.emplace_back(key);
  for (const auto& [key, value] : numbers) keys.emplace_back(key);
  for (const auto& [key, value] : switches) keys.emplace_back(key);
  const Config fields = request_of(request, keys);
  for (const auto& [key, value] : texts) *value = fields.text({key}, *value);
  for (const auto& [key, value] : numbers) *value = fields.number({key}, *value);
  for (const auto& [key, value] : switches) *value = fields.flag({key}, *value);
  if (fields.find({"checkpointing"})) (fields.flag({"checkpointing"}, false) ? out.checkpointing : out.no_checkpointing) = true;
  return out;
}

ExitCode answer(const AiToolkitRequest& request, const Show& show) {
  const Question q = question_of(request);
  const ExecutedRun run = execute(q);
  show([&](const Style& style) { return ai_toolkit_text(q, run, style); }, [&] { return ai_toolkit_json(q, run); });
  return ExitCode::ok;
}

}  // namespace plimsoll
