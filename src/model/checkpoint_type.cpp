#include "model/checkpoint_type.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "formats/trainer.h"
#include "job/settings.h"

namespace plimsoll {

namespace {

// `torch_dtype` of the config.json that these were published with: meta-llama/Llama-2-7b-hf, meta-llama/Llama-3.1-8B, Qwen/Qwen2-7B,
// Qwen/Qwen2.5-7B, Qwen/Qwen3-8B, mistralai/Mistral-7B-v0.1, mistralai/Mixtral-8x7B-v0.1.
struct PublishedType {
  const char* prefix;  // of a preset
  Precision type;
};
constexpr PublishedType kPublished[]{{"llama-2-", Precision::fp16}, {"llama-3", Precision::bf16}, {"qwen2-", Precision::bf16},
                                     {"qwen2.5-", Precision::bf16}, {"qwen3-", Precision::bf16},  {"mistral-7b", Precision::bf16},
                                     {"mixtral-", Precision::bf16}};

std::optional<Precision> said_by(const Config& config) {
  for (const char* key : {"dtype", "torch_dtype"}) {
    const nlohmann::json* value = config.find({key});
    if (!value || !value->is_string()) continue;
    const std::string type = short_type(value->get<std::string>());
    if (type == "fp32") return Precision::fp32;
    if (type == "bf16") return Precision::bf16;
    if (type == "fp16") return Precision::fp16;
  }
  return std::nullopt;
}

// Under autocast, half weights of either kind are two bytes that the products read in the type of autocast.
void take_type(Job& job, Precision type) {
  const Precision asked = job.precision;
  const bool bf16 = asked == Precision::amp || job.autocast, fp16 = asked == Precision::amp_fp16;
  if (type == Precision::fp32 || fp16) return;  // GradScaler refuses weights in fp16, so a script that trains so loads fp32
  job.precision = bf16 ? Precision::bf16 : type;
  job.autocast = bf16;
}

}  // namespace

std::optional<Precision> checkpoint_type(const Job& job) {
  if (const std::optional<Precision> said = said_by(job.config)) return said;
  for (const PublishedType& p : kPublished)
    if (job.config.source().starts_with(p.prefix)) return p.type;
  return std::nullopt;
}

void settle_weights(Job& job) {
  const auto origin = job.origin.find("precision");
  if (origin == job.origin.end() || !origin->second.ends_with(kCheckpointsType)) return;
  const std::optional<Precision> type = checkpoint_type(job);
  take_type(job, type.value_or(Precision::fp32));
  if (job.precision != Precision::fp32 || job.autocast) job.origin["autocast"] = origin->second;
  const char* weights = job.precision == Precision::bf16 ? "bf16" : job.precision == Precision::fp16 ? "fp16" : "fp32";
  job.findings.push_back({Effect::assumed, "precision", origin->second, fmt::format("{} weights", weights),
                          type ? "from_pretrained of transformers 5 keeps the type of the checkpoint; --transformers 4.57 loads fp32"
                               : "the type of the checkpoint is not known: name its config.json, or say it: --precision bf16 --autocast"});
}

}  // namespace plimsoll
