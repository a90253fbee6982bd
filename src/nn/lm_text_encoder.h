// A language model as a text encoder: its states are what is wanted, but its head, where the pipeline has left it, and its cache of keys
// and values work all the same.
#pragma once

#include "nn/decoder_stack.h"
#include "nn/text_encoder.h"

namespace plimsoll {

template <class Settings, class Stack>
struct LmTextEncoder : TextEncoder {
  LmTextEncoder(Module& parent, std::string_view name, const Settings& s, bool with_head)
      : TextEncoder(parent, name), settings(s), model(*this, "model", settings) {
    if (!with_head) return;
    const HeadSettings h = plimsoll::lm_head(settings);
    lm_head = h.tied ? std::make_unique<Linear>(*this, h.head, model.embedding(), false)
                     : std::make_unique<Linear>(*this, h.head, h.width, h.vocab_size, false);
  }

  TextStates encode(const Tensor& input_ids, bool output_hidden_states) override {
    Forward here(*this);
    TextStates out;
    out.attention_mask = empty(tape(), input_ids.sizes(), DType::int64);
    build().cache = &out.kept;
    out.last_hidden_state = model(input_ids, output_hidden_states ? &out.hidden_states : nullptr, out.attention_mask);
    build().cache = nullptr;
    if (lm_head) out.kept.push_back((*lm_head)(out.last_hidden_state));  // (N, T, vocabulary)
    return out;
  }

  Dims result_sizes(int64_t samples, int64_t tokens) const override { return {samples, tokens, settings.hidden_size}; }
  int64_t usual_tokens() const override { return 512; }

  Settings settings;
  Stack model;
  std::unique_ptr<Linear> lm_head;
};

}  // namespace plimsoll
