#include "model/diffusion/diffusion_trainer_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "model/resolve.h"
#include "util/text.h"

namespace plimsoll {

namespace {

using Json = nlohmann::json;
using Part = TrainerConfig::Part;

Part part_of(const Json& value, const std::string& key) {
  const bool plain = value.is_string();
  if (!plain && !(value.is_object() && value.contains("model") && value["model"].is_string()))
    throw Error(
        fmt::format("[diffusion-trainer] {} is {}, expected a model's name or a mapping with model", key, dump(value).substr(0, 80)),
        R"(e.g. sdxl-vae, or {"model": "sdxl-vae", "layers_per_block": 1})");
  const std::string name = plain ? value.get<std::string>() : value["model"].get<std::string>();
  Part part;
  Json config = Json::object();
  part.entry = find_model(name);
  std::vector<std::string> names;
  for (const Preset& p : presets()) {
    names.emplace_back(p.name);
    if (lower(name) != p.name) continue;
    part.entry = find_model(p.family);
    config = Json::parse(p.config);
  }
  if (!part.entry) throw Error(fmt::format("[diffusion-trainer] {} '{}' is not known", key, name), did_you_mean(name, names));
  if (!plain)
    for (const auto& item : value.items())
      if (item.key() != "model") config[item.key()] = item.value();
  part.config = Config(key + " " + name, config);
  return part;
}

std::optional<DType> dtype_of(const Config& c, const char* key) {
  const std::string text = c.text({key}, "");
  if (text.empty()) return std::nullopt;
  if (text == "bf16") return DType::bfloat16;
  if (text == "fp16") return DType::float16;
  if (text == "fp32") return DType::float32;
  throw Error(std::string("[diffusion-trainer] ") + key + " '" + text + "' is not known", did_you_mean(text, {"bf16", "fp16", "fp32"}));
}

bool is_sd_scripts(const Config& c) {
  const std::string loop = c.text({"loop"}, "ai-toolkit");
  if (loop != "ai-toolkit" && loop != "sd-scripts")
    throw Error("[diffusion-trainer] loop '" + loop + "' is not known", did_you_mean(loop, {"ai-toolkit", "sd-scripts"}));
  return loop == "sd-scripts";
}

void reject_unknown_keys(const Config& c) {
  static const std::vector<std::string> kKnown{"denoiser",
                                               "vae",
                                               "text_encoders",
                                               "cache_latents",
                                               "cache_text_embeddings",
                                               "unload_text_encoder",
                                               "dop",
                                               "loop",
                                               "train_text_encoder",
                                               "te_frozen",
                                               "diff_output_preservation",
                                               "flow_matching",
                                               "quantize_te",
                                               "vae_dtype",
                                               "te_dtype",
                                               "height",
                                               "width",
                                               "frames",
                                               "text_tokens",
                                               "layer_offloading"};  // of which step/offloaded_layers.h reads the last
  for (const auto& item : c.values().items())
    if (std::find(kKnown.begin(), kKnown.end(), item.key()) == kKnown.end())
      throw Error("[diffusion-trainer] " + item.key() + " is not known", did_you_mean(item.key(), kKnown));
}

}  // namespace

TrainerConfig::TrainerConfig(const Config& c)
    : cache_latents(c.flag({"cache_latents"}, false)),
      cache_text_embeddings(c.flag({"cache_text_embeddings"}, false)),
      unload_text_encoder(c.flag({"unload_text_encoder"}, false)),
      dop(c.flag({"dop", "diff_output_preservation"}, false)),
      flow_matching(c.flag({"flow_matching"}, false)),
      quantize_te(c.flag({"quantize_te"}, false)),
      train_text_encoder(c.flag({"train_text_encoder"}, false)),
      sd_scripts(is_sd_scripts(c)),
      vae_dtype(dtype_of(c, "vae_dtype")),
      te_dtype(dtype_of(c, "te_dtype")) {
  reject_unknown_keys(c);
  read_denoiser(c);
  if (const Json* value = c.find({"vae"})) vae = part_of(*value, "vae");
  if (vae && vae->entry->name != "autoencoder-kl" && vae->entry->name != "autoencoder-kl-wan")
    throw Error("[diffusion-trainer] vae: " + vae->entry->name + " is not an autoencoder", "e.g. vae: sdxl-vae");
  if (!vae && !cache_latents) throw Error("[diffusion-trainer] cache_latents: false needs a vae", "e.g. vae: sdxl-vae");
  read_text_encoders(c);
  read_frozen_layers(c);
}

// A picture's size is the step's.
void TrainerConfig::read_denoiser(const Config& c) {
  const Json* net = c.find({"denoiser"});
  if (!net) throw Error("[diffusion-trainer] no denoiser was named", "e.g. denoiser: sdxl-unet");
  denoiser = part_of(*net, "denoiser");
  Json with_canvas = denoiser.config.values();
  for (const char* key : {"height", "width", "frames", "text_tokens"})
    if (const Json* value = c.find({key})) with_canvas[key] = *value;
  denoiser.config = Config(denoiser.config.source(), with_canvas);
}

void TrainerConfig::read_text_encoders(const Config& c) {
  const Json* list = c.find({"text_encoders"});
  if (list && !list->is_array())
    throw Error("[diffusion-trainer] text_encoders is " + dump(*list).substr(0, 80) + ", expected a list",
                "e.g. [clip-vit-l-14-text, openclip-bigg-14-text]");
  if (list)
    for (const Json& value : *list) text_encoders.push_back(part_of(value, "text_encoders"));
  for (const Part& part : text_encoders) text_encoder(part);
  prompts();
  if (text_encoders.empty() && !encodes_nothing())
    throw Error("[diffusion-trainer] no text_encoders are named", "name them, or set cache_text_embeddings");
  if (!train_text_encoder) return;
  // SDTrainer.py raises a ValueError for each
  if (encodes_nothing())
    throw Error("[diffusion-trainer] train_text_encoder: text encoders that are cached or unloaded cannot be trained",
                "leave out cache_text_embeddings and unload_text_encoder, or train_text_encoder");
  if (dop) throw Error("[diffusion-trainer] train_text_encoder: not together with dop", "leave one of the two out");
  if (std::none_of(text_encoders.begin(), text_encoders.end(), [](const Part& p) { return p.is_clip(); }))
    throw Error("[diffusion-trainer] train_text_encoder: none of the text encoders is CLIP, and no others are trained",
                "leave train_text_encoder out");
}

void TrainerConfig::read_frozen_layers(const Config& c) {
  const Json* value = c.find({"te_frozen"});
  if (!value) return;
  if (!value->is_object())
    throw Error("[diffusion-trainer] te_frozen is " + dump(*value).substr(0, 80) + ", expected a mapping",
                R"(e.g. {"text_encoder_2": ["q_proj"]})");
  for (const auto& item : value->items()) te_frozen[item.key()] = parse_name_list(item.value(), "te_frozen");
}

const PromptEncoding& TrainerConfig::prompts() const {
  std::vector<std::string> families;
  for (const Part& part : text_encoders) families.push_back(part.entry->name);
  return prompt_encoding_of(denoiser.entry->name, families);
}

MakeTextEncoder TrainerConfig::text_encoder(const Part& part) const {
  if (part.entry->text_encoder) return part.entry->text_encoder;
  std::vector<std::string> names;
  for (const ModelEntry& e : model_registry())
    if (e.text_encoder) names.push_back(e.name);
  throw Error("[diffusion-trainer] text_encoders: " + part.entry->name + " is not a text encoder", "families: " + join(names, ", "));
}

}  // namespace plimsoll
