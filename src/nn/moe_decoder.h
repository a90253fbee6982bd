// Decoders with experts: a layer whose feed-forward is sparse or dense by its number, and the head with the loss that balances experts.
#pragma once

#include "nn/decoder_stack.h"
#include "nn/experts.h"
#include "nn/last_token_classifier.h"

namespace plimsoll {

// Settings derive from MoeConfig. A Sparse feed-forward and Attention are made of (parent, name, settings).
template <class Settings, class Sparse, class Attention = DecoderAttention>
struct MoeDecoderLayer : DecoderBlock {
  MoeDecoderLayer(Module& parent, std::string_view name, const Settings& c, size_t index)
      : DecoderBlock(
            parent, name, c, [&](Module& self) { return std::make_unique<Attention>(self, "self_attn", c); },
            [&](Module& self) -> std::unique_ptr<UnaryModule> {
              if (c.is_sparse(index)) return std::make_unique<Sparse>(self, "mlp", c);
              return gated_mlp(self, "mlp", c, index);
            }) {}
};

// With output_router_logits the loss that balances the experts is added, and the logits of all routers are part of what is returned.
template <class Settings, class Body>
struct MoeCausalLM : CausalLM<Settings, Body> {
  using Base = CausalLM<Settings, Body>;
  using Base::Base;

  Output forward(const Batch& batch) override {
    const std::shared_ptr<RouterLogits>& routers = this->settings.router_logits;
    if (!routers) return Base::forward(batch);
    if (replaces_loss(this->build(), batch.labels))
      throw Error("[loss] with output_router_logits no other kernel takes the place of the loss", "set output_router_logits to false");
    routers->active = true;
    const Tensor hidden = this->body(batch.input_ids);  // (B, T, C)
    routers->active = false;
    Tensors kept = std::exchange(routers->taken, {});
    const Tensor logits = (*this->head)(hidden);  // (B, T, V)
    Tensor loss = causal_lm_loss(this->build(), logits, batch.labels, this->upcast_before_4_49);
    const Tensor aux_loss = load_balancing_loss(kept, this->settings, batch.attention_mask);
    if (loss) loss = add_(loss, mul_scalar(aux_loss));
    kept.push_back(aux_loss);
    kept.push_back(logits);
    return {loss, kept};
  }
};

template <class Settings, class Body>
std::unique_ptr<Model> make_moe_classifier(Build& build, const Config& c, const Settings& s, std::optional<int64_t> padding = {}) {
  if (s.router_logits) throw Error("[" + c.source() + "] output_router_logits has no use in a classifier", "leave it false");
  return std::make_unique<LastTokenClassifier<Settings, Body>>(build, c, s, "model", s.hidden_size, padding);
}

}  // namespace plimsoll
