// How the AI Toolkit turns the tokens of a text into conditions (toolkit/train_tools.py): what it does with the text encoders of each
// pipeline, and what of them it keeps meanwhile.
#pragma once

#include "nn/text_encoder.h"

namespace plimsoll {

using TextEncoders = std::vector<std::unique_ptr<TextEncoder>>;

struct PromptEncoding {
  std::vector<std::string> families;                                 // of the encoders, in their order
  std::string denoiser;                                              // that alone takes these; empty: any
  Tensors (*encode)(TextEncoders& encoders, const Tensors& tokens);  // the denoiser's conditions that are made of texts
  bool joins_tokens = false;                                         // the states of the last encoder follow those of the others
  bool limits_tokens = false;                                        // CLIP, too, reads no more than the others
  int64_t template_tokens = 0;                                       // before the text; their states are dropped
};

// The pipeline of this family of denoisers with these encoders; any one alone is also one. Throws for others.
const PromptEncoding& prompt_encoding_of(const std::string& denoiser, const std::vector<std::string>& families);

// Tokens that encoder `i` reads of a text of `text_tokens`: CLIP always as many as it can.
int64_t tokens_read(const PromptEncoding& encoding, const TextEncoders& encoders, size_t i, int64_t text_tokens);

}  // namespace plimsoll
