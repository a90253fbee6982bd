#include "formats/like.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "formats/command_line.h"
#include "formats/format.h"
#include "job/settings.h"
#include "util/text.h"

namespace plimsoll {

namespace {

using Json = nlohmann::json;

struct Trainer {
  const char* word;
  const char* title;   // with the version whose source was read
  const char* format;  // the reader; null: it has none, `document` holds settings
  Json (*document)(const LikeRequest& request);
};

bool four_bits(const LikeRequest& q) { return q.quantization == "nf4" || q.quantization == "fp4"; }
bool eight_bits(const LikeRequest& q) { return q.quantization == "int8"; }
bool is_quantized(const LikeRequest& q) { return four_bits(q) || eight_bits(q); }

Json like_trainer(const LikeRequest& q) { return {{"model_name_or_path", q.model}}; }

Json like_trl(const LikeRequest& q) {
  return {{"model_name_or_path", q.model},
          {"use_peft", q.adapter.value_or(is_quantized(q))},
          {"load_in_4bit", four_bits(q)},
          {"load_in_8bit", eight_bits(q)}};
}

// lora_r and the targets have no default in axolotl's schema: those of examples/llama-3/qlora-1b.yml.
Json like_axolotl(const LikeRequest& q) {
  Json out{{"base_model", q.model}};
  if (!q.adapter.value_or(is_quantized(q))) return out;
  out["adapter"] = four_bits(q) ? "qlora" : "lora";
  out["load_in_4bit"] = four_bits(q);
  out["load_in_8bit"] = eight_bits(q);
  out.update({{"lora_r", 32}, {"lora_alpha", 16}, {"lora_dropout", 0.05}, {"lora_target_linear", true}});
  return out;
}

Json like_llama_factory(const LikeRequest& q) {
  Json out{{"model_name_or_path", q.model}, {"stage", "sft"}, {"finetuning_type", q.adapter.value_or(true) ? "lora" : "full"}};
  if (is_quantized(q)) out["quantization_bit"] = four_bits(q) ? 4 : 8;
  return out;
}

// Its recipes have no defaults, their files do: recipes/configs/llama3_1/8B_lora_single_device.yaml, 8B_qlora_... and 8B_full_...; those of
// other models say the same. A builder of no name lets the reader take the model from the checkpoint.
Json like_torchtune(const LikeRequest& q) {
  const bool adapter = q.adapter.value_or(is_quantized(q));
  Json out{{"checkpointer", {{"checkpoint_dir", q.model}}},
           {"batch_size", 2},
           {"loss", {{"_component_", "torchtune.modules.loss.LinearCrossEntropyLoss"}}},
           {"dtype", "bf16"},
           {"enable_activation_checkpointing", true},
           {"enable_activation_offloading", false}};
  if (!adapter) {
    out["model"] = {{"_component_", "torchtune.models.any"}};
    out["optimizer"] = {{"_component_", "bitsandbytes.optim.PagedAdamW8bit"}};
    out["optimizer_in_bwd"] = true;
    return out;
  }
  out["model"] = {{"_component_", four_bits(q) ? "torchtune.models.qlora_any" : "torchtune.models.lora_any"},
                  {"lora_attn_modules", {"q_proj", "v_proj", "output_proj"}},
                  {"apply_lora_to_mlp", true},
                  {"lora_rank", 8},
                  {"lora_alpha", 16}};
  out["optimizer"] = {{"_component_", "torch.optim.AdamW"}, {"fused", true}};
  out["gradient_accumulation_steps"] = 8;
  return out;
}

// FastLanguageModel.from_pretrained and get_peft_model; batch, accumulation and optimizer are those of unsloth-cli.py.
Json like_unsloth(const LikeRequest& q) {
  Json out{{"model", q.model},        {"batch", 2},       {"accumulation", 4},     {"seq", 2048},
           {"precision", "bf16"},     {"autocast", true}, {"checkpointing", true}, {"offload_activations", "pageable"},
           {"optimizer", "AdamW8bit"}};
  if (!q.adapter.value_or(true)) return out;
  out["lora"] = {{"r", 16}, {"lora_alpha", 16}, {"target_modules", "all-linear"}};
  out["quantization"] = eight_bits(q) ? Json("int8") : Json{{"type", "nf4"}, {"double_quant", true}, {"compute_dtype", "bf16"}};
  return out;
}

struct NameSign {
  const char* text;  // in the model's name
  const char* value;
};

template <size_t N>
std::string first_in(const NameSign (&signs)[N], const std::string& model) {
  const std::string name = lower(model);
  for (const NameSign& s : signs)
    if (name.find(s.text) != std::string::npos) return s.value;
  return "";
}

[[noreturn]] void not_of_this_trainer(const char* trainer, const std::string& model, const std::string& known) {
  throw Error(fmt::format("[like] {} trains image models, and {} is not one that it is known to train", trainer, printable(model, 80)),
              "known: " + known, ExitCode::usage);
}

// Words of a command: the script tells which model it is.
Json like_kohya(const LikeRequest& q) {
  static constexpr NameSign kScripts[]{{"xl", "sdxl_"},       {"flux", "flux_"}, {"sd3", "sd3_"},     {"stable-diffusion-3", "sd3_"},
                                       {"lumina", "lumina_"}, {"sd-1", ""},      {"sd1", ""},         {"v1-", ""},
                                       {"sd-2", ""},          {"sd2", ""},       {"diffusion-2", ""}, {"diffusion-v1", ""}};
  static constexpr NameSign kModules[]{{"flux", "networks.lora_flux"}, {"sd3", "networks.lora_sd3"}, {"lumina", "networks.lora_lumina"}};
  const std::string name = lower(q.model);
  if (std::none_of(std::begin(kScripts), std::end(kScripts), [&](const NameSign& s) { return name.find(s.text) != std::string::npos; }))
    not_of_this_trainer("sd-scripts", q.model, "sdxl, sd1, sd2, sd3, flux, lumina2");
  const std::string module = first_in(kModules, q.model);
  Json words{"accelerate", "launch",           first_in(kScripts, q.model) + "train_network.py", "--pretrained_model_name_or_path",
             q.model,      "--network_module", module.empty() ? "networks.lora" : module};
  if (name.find("sd2") != std::string::npos || name.find("sd-2") != std::string::npos || name.find("diffusion-2") != std::string::npos)
    words.push_back("--v2");
  return words;
}

Json like_ai_toolkit(const LikeRequest& q) {
  static constexpr NameSign kArchitectures[]{
      {"sdxl", "sdxl"},       {"diffusion-xl", "sdxl"}, {"sd3", "sd3"},           {"chroma", "chroma"},
      {"lumina", "lumina2"},  {"hidream", "hidream"},   {"omnigen2", "omnigen2"}, {"qwen", "qwen_image"},
      {"flux.2", "flux2"},    {"flux", "flux"},         {"sd-2", "sd2"},          {"sd2", "sd2"},
      {"diffusion-2", "sd2"}, {"sd-1", "sd1"},          {"sd1", "sd1"},           {"v1-", "sd1"}};
  const std::string arch = first_in(kArchitectures, q.model);
  if (arch.empty())
    not_of_this_trainer("the AI Toolkit", q.model, "sdxl, sd1, sd2, sd3, flux, chroma, lumina2, hidream, omnigen2, qwen-image");
  Json process{{"train", Json::object()}, {"datasets", {{{"folder_path", "."}}}}, {"model", {{"arch", arch}}}};
  if (q.adapter.value_or(true)) process["network"] = {{"type", "lora"}};
  if (is_quantized(q)) process["model"]["quantize"] = true;
  return {{"config", {{"process", {process}}}}};
}

constexpr Trainer kTrainers[]{{"trainer", "transformers' Trainer 5.23", "hf_training_arguments", like_trainer},
                              {"trl", "TRL 1.16", "hf_training_arguments", like_trl},
                              {"axolotl", "axolotl 0.18", "axolotl", like_axolotl},
                              {"llama-factory", "LLaMA-Factory 0.9.6", "llama_factory", like_llama_factory},
                              {"unsloth", "Unsloth 2026.8.19", nullptr, like_unsloth},
                              {"torchtune", "torchtune 0.7's recipe files", "torchtune", like_torchtune},
                              {"kohya", "sd-scripts 0.10.1", "kohya", like_kohya},
                              {"ai-toolkit", "the AI Toolkit of August 2026", "ai_toolkit", like_ai_toolkit}};

const Trainer& trainer_named(const std::string& word) {
  const std::string typed = lower(word);
  for (const Trainer& t : kTrainers)
    if (typed == t.word) return t;
  throw Error(fmt::format("[like] '{}' is no trainer that is known", printable(word, 60)), did_you_mean(typed, trainers_to_be_like()),
              ExitCode::usage);
}

Document document_of(const Trainer& trainer, const Json& content) {
  Document out;
  if (content.is_array()) {
    out = command_document(content.get<std::vector<std::string>>());
  } else {
    out.kind = Document::Kind::json;
    out.value = content;
  }
  out.name = fmt::format("like {}", trainer.word);
  return out;
}

void apply_defaults(Job& job, const Json& settings, const Trainer& trainer) {
  for (const auto& [key, value] : settings.items()) apply_setting(job, key, value, fmt::format("default of {}", trainer.title));
  job.findings.push_back({Effect::partial, "like", trainer.title,
                          "its own kernels (loss in chunks, fused layers) are not simulated, transformers' are: it needs less", ""});
}

}  // namespace

std::vector<std::string> trainers_to_be_like() {
  std::vector<std::string> out;
  for (const Trainer& t : kTrainers) out.emplace_back(t.word);
  return out;
}

void read_like(Job& job, const std::string& word, const LikeRequest& request) {
  const Trainer& trainer = trainer_named(word);
  const Json content = trainer.document(request);
  job.findings.push_back({Effect::assumed, "like", fmt::format("like {}", trainer.word), fmt::format("the defaults of {}", trainer.title),
                          "docs/like.md has them as a table"});
  const std::string given_by = job.origin["model"];
  if (trainer.format) {
    const Document document = document_of(trainer, content);
    Reader reader(job, document);
    format_named(trainer.format)->read(reader);
  } else {
    apply_defaults(job, content, trainer);
  }
  if (job.model == request.model) job.origin["model"] = given_by;
}

}  // namespace plimsoll
