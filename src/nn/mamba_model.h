// The bodies of Mamba and Mamba 2, which differ in their mixers: norm and mixer beside a residual, again and again, and a head.
#pragma once

#include "nn/layers.h"
#include "nn/model.h"
#include "nn/transformer.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll {

struct MambaSettings {
  MambaSettings(const Config& c, int64_t vocabulary, int64_t width, int64_t layers, bool tied)
      : vocab_size(c.size({"vocab_size"}, vocabulary)),
        hidden_size(c.size({"hidden_size", "d_model"}, width)),
        num_hidden_layers(c.size({"num_hidden_layers", "n_layer"}, layers)),
        residual_in_fp32(c.flag({"residual_in_fp32"}, true)),
        tie_word_embeddings(c.flag({"tie_word_embeddings"}, tied)) {
    reject_captured_outputs(c);
  }
  int64_t vocab_size, hidden_size, num_hidden_layers;
  bool residual_in_fp32, tie_word_embeddings;
};

// Settings derive from MambaSettings. A Mixer is made of (parent, name, settings) and called with x.
template <class Settings, class Mixer>
struct MambaBlock : Module {
  MambaBlock(Module& parent, std::string_view name, const Settings& c) : Module(parent, name), config(c) {}

  Tensor operator()(const Tensor& x) const {
    Forward here(*this);
    Tensor residual = x;
    Tensor hidden = norm(to(x, norm.weight.dtype()));  // (B, T, C)
    if (config.residual_in_fp32) residual = to(residual, DType::float32);
    hidden = run_part(mixer, hidden);
    hidden = add(residual, hidden);
    return hidden;
  }

  const Settings& config;
  RMSNorm norm{*this, "norm", config.hidden_size};
  Mixer mixer{*this, "mixer", config};
};

template <class Settings, class Mixer>
struct MambaModel : Module {
  MambaModel(Module& parent, std::string_view name, const Settings& c) : Module(parent, name), config(c) {}

  Module& add_layers() {
    for (int64_t i = 0; i < config.num_hidden_layers; ++i) layers.add(config);
    return *this;
  }

  Tensor operator()(const Tensor& input_ids) {
    Forward here(*this);
    const Tensor inputs_embeds = embeddings(input_ids);
    Tensor hidden = inputs_embeds;  // (B, T, C)
    for (MambaBlock<Settings, Mixer>& block : layers)
      hidden = run_block(
          block, [&block](const Tensor& x) { return block(x); }, hidden);
    hidden = norm_f(hidden);
    return hidden;
  }

  const Settings& config;
  Embedding embeddings{*this, "embeddings", config.vocab_size, config.hidden_size};
  ModuleList<MambaBlock<Settings, Mixer>> layers{*this, "layers"};
  RMSNorm norm_f{add_layers(), "norm_f", config.hidden_size};
};

template <class Settings, class Mixer>
struct MambaForCausalLM : Model {
  MambaForCausalLM(Build& build, const Settings& s)
      : Model(build),
        config(s),
        backbone(*this, "backbone", config),
        lm_head(config.tie_word_embeddings ? std::make_unique<Linear>(*this, "lm_head", backbone.embeddings.weight, false)
                                           : std::make_unique<Linear>(*this, "lm_head", config.hidden_size, config.vocab_size, false)) {}

  Output forward(const Batch& batch) override {
    const Tensor hidden = backbone(batch.input_ids);                                                                           // (B, T, C)
    const Tensor logits = to((*lm_head)(to(getitem(hidden, 1, 0, hidden.size(1)), lm_head->weight.dtype())), DType::float32);  // (B, T, V)
    return {loss(logits, batch.labels), {logits}};
  }

  virtual Tensor loss(const Tensor& logits, const Tensor& labels) const { return shifted_cross_entropy(logits, labels); }
  bool uses_cache() const override { return false; }  // not in training

  Settings config;
  MambaModel<Settings, Mixer> backbone;
  std::unique_ptr<Linear> lm_head;
};

}  // namespace plimsoll
