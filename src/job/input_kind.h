// What a model is given in a training step.
#pragma once

#include <cstdint>
#include <string>

namespace plimsoll {

enum class InputKind : uint8_t {
  lm,      // token ids that are their own labels; also encoder-decoder models
  cls,     // token ids and one label a sample
  image,   // pixels and one label a sample
  pair,    // token ids that are their own labels, and one label a pair of sentences
  vector,  // numbers and one label a sample
  own,     // what the model makes itself: diffusion, video, audio
};

// Names as they are written in job files and flags. Parsing throws an Error that lists what is known.
const char* to_string(InputKind k);
InputKind parse_inputs(const std::string& text);

}  // namespace plimsoll
