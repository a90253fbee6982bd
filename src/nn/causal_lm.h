// ForCausalLM of transformers: a body, a head that may share the embedding's weight, and the shifted cross-entropy.
#pragma once

#include "nn/layers.h"
#include "nn/loss_kernels.h"
#include "nn/model.h"
#include "nn/transformer.h"

namespace plimsoll {

struct HeadSettings {
  const char* body = "model";  // module names as in Python
  const char* head = "lm_head";
  int64_t width = 0;  // of what the body returns
  int64_t vocab_size = 0;
  bool tied = false;
  bool bias = false;
  bool upcast_before_4_49 = true;  // the loss was computed in fp32 there, too
};

// Body is the model below the head: a module made of (parent, name, settings), called with the ids, with the weight of its
// input embedding as embedding().
template <class Settings, class Body>
struct CausalLM : Model {
  CausalLM(Build& build, const Settings& s, const HeadSettings& h)
      : Model(build),
        settings(s),
        body(*this, h.body, settings),
        head(h.tied ? std::make_unique<Linear>(*this, h.head, body.embedding(), h.bias)
                    : std::make_unique<Linear>(*this, h.head, h.width, h.vocab_size, h.bias)),
        upcast_before_4_49(h.upcast_before_4_49) {}

  Output forward(const Batch& batch) override {
    const Tensor hidden = body(batch.input_ids);  // (B, T, C)
    if (replaces_loss(build(), batch.labels)) {
      const HeadCall call{*head, [this](const Tensor& x) { return finish_logits((*head)(x)); }, caps_logits()};
      return {linear_cross_entropy(build(), call, hidden, batch.labels), {}};
    }
    const Tensor logits = finish_logits((*head)(hidden));  // (B, T, V)
    return {causal_lm_loss(build(), logits, batch.labels, upcast_before_4_49), {logits}};
  }

  bool takes_loss_kernels() const override { return true; }
  virtual Tensor finish_logits(Tensor logits) const { return logits; }
  virtual bool caps_logits() const { return false; }  // through tanh, in finish_logits

  Settings settings;
  Body body;
  std::unique_ptr<Linear> head;
  bool upcast_before_4_49;
};

}  // namespace plimsoll
