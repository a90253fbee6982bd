#include "model/diffusion/toolkit_prompts.h"

#include <algorithm>

#include "ops/pointwise.h"
#include "ops/reshape.h"
#include "util/text.h"

namespace plimsoll {

namespace {

constexpr int64_t kQwenTemplate = 34;  // QwenImagePipeline.prompt_template_encode_start_idx

struct Prompt {
  Tensor states, pooled;  // (N, T, C), (N, C)
};

// encode_prompts: one encoder's last states
Tensors encode_prompts(TextEncoders& te, const Tensors& tokens) { return {te[0]->encode(tokens[0], false).last_hidden_state}; }

// text_encode_xl: the states before the last layer, once for each image of a prompt
Prompt text_encode_xl(TextEncoder& encoder, const Tensor& tokens) {
  Prompt out;
  {
    const TextStates prompt_embeds = encoder.encode(tokens, true);
    out.pooled = encoder.result(prompt_embeds);
    out.states = prompt_embeds.hidden_states[prompt_embeds.hidden_states.size() - 2];
  }
  out.states = clone(out.states);
  return out;
}

Tensors encode_prompts_xl(TextEncoders& te, const Tensors& tokens) {
  Tensors text_embeds_list;
  Tensor pooled;
  for (size_t i = 0; i < te.size(); ++i) {
    Prompt prompt = text_encode_xl(*te[i], tokens[i]);
    pooled = prompt.pooled;
    text_embeds_list.push_back(prompt.states);
  }
  pooled = clone(pooled);
  return {cat(text_embeds_list, -1), pooled};
}

// CLIP's result stays until T5's takes its name.
Tensors encode_prompts_flux(TextEncoders& te, const Tensors& tokens) {
  const TextStates prompt_embeds = te[0]->encode(tokens[0], false);
  const Tensor states = te[1]->encode(tokens[1], false).last_hidden_state;
  return {states, prompt_embeds.pooled};
}

// StableDiffusion3Pipeline._get_clip_prompt_embeds
Prompt clip_prompt_embeds(TextEncoder& encoder, const Tensor& tokens) {
  Prompt out = text_encode_xl(encoder, tokens);
  out.pooled = clone(out.pooled);
  return out;
}

Tensors encode_prompts_sd3(TextEncoders& te, const Tensors& tokens) {
  const Prompt first = clip_prompt_embeds(*te[0], tokens[0]), second = clip_prompt_embeds(*te[1], tokens[1]);
  Tensor clip = cat({first.states, second.states}, -1);
  Tensor t5 = te[2]->encode(tokens[2], false).last_hidden_state;
  t5 = clone(t5);
  if (clip.size(-1) > t5.size(-1))
    throw Error("[diffusion-trainer] the states of the first two text encoders are wider than those of the third",
                "name the encoders of one pipeline");
  clip = constant_pad_nd(clip, {0, t5.size(-1) - clip.size(-1)});
  const Tensor states = cat({clip, t5}, -2);
  return {states, cat({first.pooled, second.pooled}, -1)};
}

// Lumina2Pipeline._get_gemma_prompt_embeds: the states before the last layer, and the mask
Tensors encode_prompts_lumina2(TextEncoders& te, const Tensors& tokens) {
  TextStates prompt_embeds = te[0]->encode(tokens[0], true);
  const Tensor states = prompt_embeds.hidden_states[prompt_embeds.hidden_states.size() - 2];
  return {states, prompt_embeds.attention_mask};
}

// QwenImagePipeline._get_qwen_prompt_embeds: the last states without those of the template, sample by sample
Tensors encode_prompts_qwen_image(TextEncoders& te, const Tensors& tokens) {
  Tape& tape = tokens[0].tape();
  const TextStates encoder_hidden_states = te[0]->encode(tokens[0], true);
  const Tensor& hidden = encoder_hidden_states.hidden_states.back();  // (N, T, C)
  Tensor selected;                                                    // (N T, C)
  {
    const Tensor bool_mask = nondiff("_to_copy", tokens[0], DType::bool_),
                 places = filled(tape, "nonzero", {tokens[0].numel(), 2}, DType::int64);
    selected = filled(tape, "index", {tokens[0].numel(), hidden.size(2)}, hidden.dtype());
  }
  const int64_t text = hidden.size(1) - kQwenTemplate;
  Tensors padded, masks, padded_masks;
  for (int64_t i = 0; i < hidden.size(0); ++i) masks.push_back(filled(tape, "ones", {text}, DType::int64));
  for (int64_t i = 0; i < hidden.size(0); ++i)
    padded.push_back(cat({slice(selected, 0, i * hidden.size(1) + kQwenTemplate, (i + 1) * hidden.size(1))}, 0));
  const Tensor prompt_embeds = stack(padded, 0);
  padded.clear();
  for (const Tensor& m : masks) padded_masks.push_back(cat({m}, 0));
  return {prompt_embeds, stack(padded_masks, 0)};
}

// HiDreamImagePipeline._encode_prompt: T5's states, those of all layers of Llama, and what both CLIPs pooled
Tensors encode_prompts_hidream(TextEncoders& te, const Tensors& tokens) {
  const auto pool = [&](size_t i) {
    Tensor prompt_embeds = te[i]->encode(tokens[i], true).pooled;
    return clone(prompt_embeds);
  };
  const Tensor first = pool(0), second = pool(1);
  const Tensor pooled = cat({first, second}, -1);
  Tensor t5 = te[2]->encode(tokens[2], false).last_hidden_state;
  t5 = clone(t5);
  const TextStates outputs = te[3]->encode(tokens[3], true);
  Tensor llama = stack({outputs.hidden_states.begin() + 1, outputs.hidden_states.end()}, 0);  // (layers, N, T, C)
  llama = clone(llama);
  return {t5, llama, pooled};
}

// OmniGen2Pipeline._get_qwen2_prompt_embeds: the last states and the mask, once for each image of a prompt
Tensors encode_prompts_omnigen2(TextEncoders& te, const Tensors& tokens) {
  Tensor states, mask;
  {
    const TextStates prompt_embeds = te[0]->encode(tokens[0], true);
    states = prompt_embeds.hidden_states.back();
    mask = prompt_embeds.attention_mask;
  }
  states = clone(states);
  mask = clone(mask);
  return {states, mask};
}

const std::vector<PromptEncoding>& encodings() {
  static const std::vector<PromptEncoding> list{
      {{"clip-text", "clip-text-projection"}, "", encode_prompts_xl},
      {{"clip-text", "t5-encoder"}, "", encode_prompts_flux},
      {{"clip-text-projection", "clip-text-projection", "t5-encoder"}, "", encode_prompts_sd3, true},
      {{"clip-text-projection", "clip-text-projection", "t5-encoder", "llama"}, "", encode_prompts_hidream, false, true},
      {{"gemma2"}, "", encode_prompts_lumina2},
      {{"qwen2"}, "qwen_image", encode_prompts_qwen_image, false, false, kQwenTemplate},
      {{"qwen2.5-vl-text"}, "qwen_image", encode_prompts_qwen_image, false, false, kQwenTemplate},
      {{"qwen2.5-vl-text"}, "omnigen2", encode_prompts_omnigen2}};
  return list;
}

}  // namespace

const PromptEncoding& prompt_encoding_of(const std::string& denoiser, const std::vector<std::string>& families) {
  static const PromptEncoding alone{{}, "", encode_prompts};
  std::vector<std::string> known{"one alone"};
  for (const PromptEncoding& e : encodings()) {
    if (e.families == families && (e.denoiser.empty() || e.denoiser == denoiser)) return e;
    known.push_back(join(e.families, " + "));
  }
  if (families.size() <= 1) return alone;
  throw Error("[diffusion-trainer] no pipeline has the text_encoders " + join(families, " + "), "families: " + join(known, "; "));
}

int64_t tokens_read(const PromptEncoding& encoding, const TextEncoders& encoders, size_t i, int64_t text_tokens) {
  const bool is_clip = encoders[i]->gives_hidden_states();
  const int64_t most = encoders[i]->usual_tokens();
  if (is_clip) return encoding.limits_tokens ? std::min(text_tokens, most) : most;
  const int64_t rest = text_tokens - (encoding.joins_tokens ? encoders[0]->usual_tokens() : 0);
  if (rest <= 0)
    throw Error("[diffusion-trainer] text_tokens " + std::to_string(text_tokens) + " leave none for the last text encoder",
                "the first ones take " + std::to_string(encoders[0]->usual_tokens()));
  return rest + encoding.template_tokens;
}

}  // namespace plimsoll
