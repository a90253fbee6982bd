#include "systems/ai_toolkit/report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace plimsoll {

namespace {

using namespace ai_toolkit;
using Json = nlohmann::ordered_json;

std::string gb(double n) { return to_fixed(n, 2) + " GB"; }
std::string gb(const std::optional<double>& n) { return n ? gb(*n) : "-"; }

const char* yes_no(bool b) { return b ? "yes" : "no"; }

std::string headline(const Question& q) {
  const std::string machine =
      q.profile.unified ? fmt::format("{} GB unified", q.profile.pool()) : fmt::format("{} GB card", q.profile.vram_gb);
  return fmt::format("{} at {} px, {}, {} images, {} ({}, {})", q.arch, q.resolution, machine, q.images, to_string(q.target),
                     to_string(q.version), commit_of(q.version));
}

// Where not one sample fits, each still answers 1.
std::string without_room(const Budget& code, const Budget& document) {
  if (code.divided >= 1 && document.divided >= 1) return "";
  const char* who = code.divided >= 1 ? "by the document" : document.divided >= 1 ? "by the code" : "by either";
  return fmt::format("not one sample fits {}: 1 is the least, and not enough memory", who);
}

// What the code and the document say, row by row.
class Answers {
 public:
  void row(const char* name, const std::string& code, const std::string& document, const std::string& remark = "") {
    table_.rows.push_back({{name, code, document, remark}});
  }
  doc::Table table() && { return std::move(table_); }

 private:
  doc::Table table_{{{""}, {"code", doc::Kind::number}, {"document", doc::Kind::number}, {""}}};
};

// Each part of the sum for unified memory.
void add_budget(Answers& out, const CodeAnswer& code, const DocumentAnswer& document) {
  if (!code.budget || !document.budget) return;
  const Budget &c = *code.budget, &d = *document.budget;
  out.row("weights", gb(c.weights), gb(d.weights));
  out.row("optimizer states", gb(c.optimizer), gb(d.optimizer), "code: with EMA, whatever is trained; document: 2 x weights");
  out.row("EMA", "-", gb(d.ema));
  if (d.preservation > 0) out.row("output preservation", "-", gb(d.preservation));
  out.row("workers", gb(c.workers), gb(d.workers), "8 GB each");
  out.row("system", gb(c.system), gb(d.system));
  out.row("reserved", gb(c.reserved), gb(d.reserved));
  out.row("for batches", gb(c.available), gb(d.available), fmt::format("({} - reserved) x 0.9", c.total));
  out.row("a sample", gb(c.per_sample), gb(d.per_sample), "4 GB a megapixel, whatever the model");
  out.row("divided", fmt::format("{}", c.divided), fmt::format("{}", d.divided), without_room(c, d));
}

doc::Table answers_table(const CodeAnswer& code, const DocumentAnswer& document) {
  Answers out;
  add_budget(out, code, document);
  out.row("batch size", fmt::format("{}", code.batch.batch_size), fmt::format("{}", document.batch_size), "initial");
  out.row("largest batch", fmt::format("{}", code.batch.max_batch_size), fmt::format("{}", document.max_batch_size));
  out.row("workers", fmt::format("{}", code.num_workers), fmt::format("{}", document.num_workers));
  out.row("memory it estimates", gb(code.estimate), gb(document.total),
          document.total && document.total_for != code.batch_size
              ? fmt::format("for batches of {} and {}", code.batch_size, document.total_for)
              : fmt::format("for a batch of {}", code.batch_size));
  out.row("memory its page shows", gb(code.shown), "-", "five of its nine arguments");
  if (code.gradient_checkpointing)
    out.row("checkpointing saves", gb(-code.regularization.gradient_checkpointing_savings), gb(document.checkpointing_saves));
  return std::move(out).table();
}

doc::List defaults_list(const CodeAnswer& a) {
  const SmartDefaults& d = a.defaults;
  doc::List out;
  const auto add = [&](std::string text) { out.items.emplace_back(std::move(text)); };
  add(fmt::format("{} {} of rank {}, lr {}, {} steps, {} checkpointing {}; cache {}, prefetch {}, persistent workers {}", d.optimizer,
                  to_string(d.network), d.lora.rank, d.lr, d.steps, d.dtype, d.gradient_checkpointing ? "on" : "off",
                  d.cache.cache_latents ? "in memory" : "on disk", d.gpu_prefetch_batches, yes_no(d.workers.persistent_workers)));
  if (d.low_vram) add(fmt::format("low_vram {}", yes_no(*d.low_vram)));
  if (d.advanced)
    add(fmt::format("{} schedule, warm-up {}; noise by {}, offset {}; flip {}, crop {}; samples by {} in {} steps at {}",
                    d.advanced->lr_scheduler.name, d.advanced->lr_scheduler.warmup_steps, d.advanced->noise_scheduler,
                    d.advanced->noise_offset.noise_offset, yes_no(d.advanced->augmentations.flip_x),
                    yes_no(d.advanced->augmentations.random_crop), d.advanced->sample.sampler, d.advanced->sample.sample_steps,
                    d.advanced->sample.guidance_scale));
  add(fmt::format("predicts {}, a step {}, in all {}, disk {}, {}", a.prediction.estimated_vram, a.prediction.step_time,
                  a.prediction.total_time, a.prediction.disk_space, a.prediction.memory_usage));
  for (const auto* messages : {&d.messages, &a.warnings})
    for (const AdvisorMessage& m : *messages) add(fmt::format("{}: {}: {}", m.type, m.about, m.message));
  return out;
}

doc::Blocks difference_blocks(const Question& q) {
  doc::Blocks out{doc::Heading{"Where code and document differ"}};
  for (const Difference& d : differences(q))
    doc::append(out,
                {doc::Heading{d.about, {}, 2}, doc::Facts{{{"code", d.code}, {"document", d.document}, {"", doc::dim(d.consequence)}}}});
  return out;
}

doc::Text executed_text(const ExecutedRun& run) {
  if (!run.estimate) return fmt::format("{}: not available: {}{}", run.model, run.why_not, run.hint.empty() ? "" : " (" + run.hint + ")");
  const Estimate& e = *run.estimate;
  doc::Text out = fmt::format("{}, batch {}: tensors ", run.model, e.job.batch) + doc::Text(e.peak);
  if (e.memory)
    out += doc::Text(", on the device ") + e.memory->device.bytes + " (" + doc::interval(e.memory->device.low, e.memory->device.high) + ")";
  return out;
}

Json budget_json(const std::optional<Budget>& b) {
  if (!b) return nullptr;
  return {{"total_gb", b->total},
          {"weights_gb", b->weights},
          {"optimizer_gb", b->optimizer},
          {"ema_gb", b->ema},
          {"preservation_gb", b->preservation},
          {"workers_gb", b->workers},
          {"system_gb", b->system},
          {"reserved_gb", b->reserved},
          {"available_gb", b->available},
          {"per_sample_gb", b->per_sample},
          {"divided", b->divided}};
}

Json batch_json(const BatchConfig& b) {
  return {{"batch_size", b.batch_size},
          {"auto_scale_batch_size", b.auto_scale_batch_size},
          {"min_batch_size", b.min_batch_size},
          {"max_batch_size", b.max_batch_size},
          {"batch_size_warmup_steps", b.batch_size_warmup_steps}};
}

Json advanced_json(const AdvancedDefaults& a) {
  return {{"lr_scheduler", a.lr_scheduler.name},
          {"warmup_steps", a.lr_scheduler.warmup_steps},
          {"noise_scheduler", a.noise_scheduler},
          {"loss_target", a.loss_target},
          {"do_cfg", a.cfg.do_cfg},
          {"cfg_scale", a.cfg.cfg_scale},
          {"noise_offset", a.noise_offset.noise_offset},
          {"min_snr_gamma", a.noise_offset.min_snr_gamma ? Json(*a.noise_offset.min_snr_gamma) : Json(nullptr)},
          {"min_denoising_steps", a.timesteps.min_denoising_steps},
          {"max_denoising_steps", a.timesteps.max_denoising_steps},
          {"flip_x", a.augmentations.flip_x},
          {"flip_y", a.augmentations.flip_y},
          {"random_crop", a.augmentations.random_crop},
          {"random_scale", a.augmentations.random_scale},
          {"log_every", a.logging.log_every},
          {"verbose", a.logging.verbose},
          {"sampler", a.sample.sampler},
          {"sample_steps", a.sample.sample_steps},
          {"guidance_scale", a.sample.guidance_scale},
          {"seed", a.sample.seed}};
}

Json defaults_json(const SmartDefaults& d) {
  Json out{{"train", batch_json(d.batch)}};
  Json& train = out["train"];
  train["lr"] = d.lr;
  train["steps"] = d.steps;
  train["gradient_accumulation_steps"] = d.gradient_accumulation_steps;
  train["optimizer"] = d.optimizer;
  train["dtype"] = d.dtype;
  train["gradient_checkpointing"] = d.gradient_checkpointing;
  if (d.low_vram) out["model"] = {{"low_vram", *d.low_vram}};
  out["dataset"] = {{"cache_latents", d.cache.cache_latents},
                    {"cache_latents_to_disk", d.cache.cache_latents_to_disk},
                    {"cache_gb", d.cache.cache_gb},
                    {"gpu_prefetch_batches", d.gpu_prefetch_batches},
                    {"num_workers", d.workers.num_workers},
                    {"persistent_workers", d.workers.persistent_workers},
                    {"resolution", {d.resolution, d.resolution}}};
  out["network"] = {{"type", to_string(d.network)}, {"linear", d.lora.rank}, {"linear_alpha", d.lora.alpha}};
  if (d.advanced) out["advanced"] = advanced_json(*d.advanced);
  return out;
}

Json messages_json(const CodeAnswer& a) {
  Json out = Json::array();
  for (const auto* list : {&a.defaults.messages, &a.warnings})
    for (const AdvisorMessage& m : *list) out.push_back({{"type", m.type}, {"about", m.about}, {"message", m.message}});
  return out;
}

Json code_json(const CodeAnswer& a) {
  return {{"defaults", defaults_json(a.defaults)},
          {"num_workers", a.num_workers},
          {"batch", batch_json(a.batch)},
          {"budget", budget_json(a.budget)},
          {"estimate_for_batch", a.batch_size},
          {"estimate_gb", a.estimate},
          {"shown_gb", a.shown},
          {"regularization_gb",
           {{"ema", a.regularization.ema},
            {"diff_output_preservation", a.regularization.diff_output_preservation},
            {"gradient_checkpointing_savings", a.regularization.gradient_checkpointing_savings}}},
          {"prediction",
           {{"estimated_vram", a.prediction.estimated_vram},
            {"step_time", a.prediction.step_time},
            {"total_time", a.prediction.total_time},
            {"disk_space", a.prediction.disk_space},
            {"memory_usage", a.prediction.memory_usage}}},
          {"messages", messages_json(a)}};
}

Json document_json(const DocumentAnswer& a) {
  return {{"budget", budget_json(a.budget)},
          {"batch_size", a.batch_size},
          {"max_batch_size", a.max_batch_size},
          {"total_for_batch", a.total_for},
          {"total_gb", a.total ? Json(*a.total) : Json(nullptr)},
          {"checkpointing_saves_gb", a.checkpointing_saves},
          {"num_workers", a.num_workers}};
}

Json executed_json(const ExecutedRun& run) {
  if (!run.estimate) return {{"model", run.model}, {"available", false}, {"reason", run.why_not}};
  Json out{{"model", run.model}, {"available", true}, {"batch", run.estimate->job.batch}, {"peak_bytes", run.estimate->peak.count}};
  if (run.estimate->memory) out["device_bytes"] = run.estimate->memory->device.bytes.count;
  return out;
}

}  // namespace

doc::Document ai_toolkit_document(const Question& q, const ExecutedRun& run) {
  const CodeAnswer code = code_answer(q);
  doc::Document out{"AI Toolkit's rules", headline(q)};
  out.blocks = {answers_table(code, document_answer(q)), doc::Heading{"What it would configure"}, defaults_list(code)};
  doc::append(out.blocks, difference_blocks(q));
  doc::append(out.blocks, {doc::Heading{"Executed"}, doc::Paragraph{executed_text(run)}});
  return out;
}

nlohmann::ordered_json ai_toolkit_json(const Question& q, const ExecutedRun& run) {
  Json list = Json::array();
  for (const Difference& d : differences(q))
    list.push_back({{"about", d.about}, {"code", d.code}, {"document", d.document}, {"consequence", d.consequence}});
  return {{"schema", 1},
          {"command", "ai-toolkit"},
          {"version", to_string(q.version)},
          {"commit", commit_of(q.version)},
          {"arch", q.arch},
          {"resolution", q.resolution},
          {"code", code_json(code_answer(q))},
          {"document", document_json(document_answer(q))},
          {"differences", list},
          {"executed", executed_json(run)}};
}

}  // namespace plimsoll
