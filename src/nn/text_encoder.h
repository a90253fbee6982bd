// Networks that turn tokens into states for others, mostly frozen: their interface, and a training of one on its own, in which its
// states are compared with given ones.
#pragma once

#include "job/config.h"
#include "nn/model.h"

namespace plimsoll {

struct TextStates {
  Tensor last_hidden_state;  // (N, T, C)
  Tensor pooled;             // (N, C) or (N, projection); undefined: there is none
  Tensors hidden_states;     // output_hidden_states: what every layer gets, and the last one's result
  Tensor attention_mask;     // (N, T): what was given with the tokens, where anything is
  Tensors kept;              // what else lives as long: logits, keys and values
};

class TextEncoder : public Module {
 public:
  using Module::Module;
  virtual TextStates encode(const Tensor& input_ids, bool output_hidden_states) = 0;
  virtual Dims result_sizes(int64_t samples, int64_t tokens) const = 0;  // of what it is asked for: states, or a projection of one
  virtual Tensor result(const TextStates& states) const { return states.last_hidden_state; }
  virtual bool gives_hidden_states() const { return false; }  // pipelines take those of the layer before the last
  virtual int64_t usual_tokens() const = 0;
};

using MakeTextEncoder = std::unique_ptr<TextEncoder> (*)(Module& parent, std::string_view name, const Config& config);
std::unique_ptr<Model> make_text_encoder_training(Build& build, const Config& config, MakeTextEncoder make);

}  // namespace plimsoll
