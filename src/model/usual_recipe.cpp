#include "model/usual_recipe.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "job/settings.h"
#include "model/checkpoint_type.h"
#include "model/registry.h"

namespace plimsoll {

namespace {

// cutoff_len of LLaMA-Factory 0.9.6 and max_seq_length of Unsloth 2026.8.
constexpr int64_t kUsualTokens = 2048;

// Ends with the name of the flag that says otherwise.
constexpr const char* kAssumed = "assumed";

bool is_about_tokens(const Job& job) {
  return job.inputs == InputKind::lm || job.inputs == InputKind::cls || job.inputs == InputKind::pair;
}

// As long as the model has positions for; 0: the length was given, or is none of tokens.
int64_t usual_length(const Job& job, const Family& family) {
  const auto said = job.origin.find("seq");
  if (!is_about_tokens(job) || !job.collation.lengths.empty() || said == job.origin.end() || !said->second.starts_with("usual for "))
    return 0;
  int64_t positions = 0;
  for (const char* key : {"max_position_embeddings", "n_positions"})
    if (const nlohmann::json* n = job.config.find({key}); n && n->is_number_integer()) positions = n->get<int64_t>();
  return positions > 0 ? std::min(kUsualTokens, std::max<int64_t>(1, positions - family.first_position)) : std::min(kUsualTokens, job.seq);
}

bool is_pefts(const Family& family) { return family.is_transformers() || family.library == "diffusers"; }

// What is sharded has the types of its wrapper, not those of autocast.
bool is_sharded(const ParallelSettings& p) { return p.fsdp || p.fsdp1 || p.deepspeed || p.tensor; }

const Family* family_of(const Job& job) {
  const ModelEntry* entry = find_model(job.family);
  return entry ? entry->family : nullptr;
}

std::string phrase_of(const Job& job, const std::string& setting) {
  if (setting == "seq") return fmt::format("{} tokens", job.seq);
  if (setting == "autocast") return "bf16 autocast";
  if (setting == "checkpointing") return "activation checkpointing";
  return job.precision == Precision::bf16 ? "bf16 weights" : "fp32 weights under bf16 autocast";
}

void take_assumed(Job& job, const Patch& recipe, const std::string& why) {
  recipe.apply(job, kAssumed);
  std::erase_if(job.findings, [&](const Finding& f) { return f.effect == Effect::assumed && recipe.contains(f.setting); });
  for (const auto& [setting, value] : recipe.in_order())
    job.findings.push_back({Effect::assumed, setting, job.model, phrase_of(job, setting), why});
}

}  // namespace

Patch usual_recipe(const Job& job) {
  Patch out;
  const Family* family = family_of(job);
  if (!family || !is_pefts(*family) || job.program.framework != Framework::pytorch || job.program.megatron || job.program.torchtitan)
    return out;
  const auto is_given = [&](const char* setting) { return job.origin.contains(setting); };
  const bool fp32 = checkpoint_type(job) == Precision::fp32;
  if (!is_given("precision") && !is_given("autocast")) out.set("precision", fp32 ? "amp" : "bf16");
  if (is_given("autocast") && !is_given("precision")) out.set("precision", job.autocast || !fp32 ? "bf16" : "fp32");
  const bool bf16 = is_given("precision") ? job.precision == Precision::bf16 : out.text("precision") == "bf16";
  if (bf16 && !is_given("autocast") && !is_sharded(job.parallel)) out.set("autocast", true);
  if (!is_given("checkpointing")) out.set("checkpointing", true);
  if (const int64_t tokens = usual_length(job, *family)) out.set("seq", tokens);
  return out;
}

void take_usual_recipe(Job& job) {
  if (job.tuning.adapter)
    take_assumed(job, usual_recipe(job),
                 "what PEFT's users run; a flag says otherwise: --seq, --precision, --autocast=false, "
                 "--checkpointing=false");
}

void take_usual_length(Job& job) {
  const Family* family = family_of(job);
  if (const int64_t tokens = family ? usual_length(job, *family) : 0) take_assumed(job, {{"seq", tokens}}, "--seq says otherwise");
}

}  // namespace plimsoll
