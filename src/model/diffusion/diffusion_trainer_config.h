// The settings of the family diffusion-trainer: which networks take part in a step, what of them is cached or trained, and whose loop it
// is.
#pragma once

#include "job/config.h"
#include "model/diffusion/toolkit_prompts.h"
#include "model/registry.h"

namespace plimsoll {

struct TrainerConfig {
  // A network by the name of a preset or family, alone or as "model" beside what differs from it.
  struct Part {
    const ModelEntry* entry = nullptr;
    Config config;
    bool is_clip() const { return entry->name.starts_with("clip"); }
  };

  explicit TrainerConfig(const Config& config);

  const PromptEncoding& prompts() const;
  bool encodes_nothing() const { return cache_text_embeddings || unload_text_encoder; }
  MakeTextEncoder text_encoder(const Part& part) const;

  bool cache_latents, cache_text_embeddings, unload_text_encoder, dop, flow_matching, quantize_te;
  bool train_text_encoder;  // those that are CLIP: in full, or through an adapter where the denoiser has one
  bool sd_scripts;          // the loop is that of kohya's sd-scripts, else the AI Toolkit's
  std::optional<DType> vae_dtype, te_dtype;
  Part denoiser;
  std::optional<Part> vae;
  std::vector<Part> text_encoders;
  std::map<std::string, std::vector<std::string>>
      te_frozen;  // by text encoder ("text_encoder_2"): layers that training in full leaves alone

 private:
  void read_denoiser(const Config& config);
  void read_text_encoders(const Config& config);
  void read_frozen_layers(const Config& config);
};

}  // namespace plimsoll
