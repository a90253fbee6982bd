#include "nn/clip_encoder.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "ops/conv.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

ClipLayerConfig layer_config(const Config& c, const ClipLayerConfig& d) {
  reject_captured_outputs(c);
  ClipLayerConfig out = d;
  out.hidden_size = c.size({"hidden_size"}, d.hidden_size);
  out.intermediate_size = c.size({"intermediate_size"}, d.intermediate_size);
  out.num_hidden_layers = c.size({"num_hidden_layers"}, d.num_hidden_layers);
  out.num_attention_heads = c.size({"num_attention_heads"}, d.num_attention_heads);
  out.hidden_act = c.text({"hidden_act"}, d.hidden_act);
  out.attention_dropout = c.number({"attention_dropout"}, 0.0);
  c.require_divides("num_attention_heads", out.num_attention_heads, "hidden_size", out.hidden_size);
  return out;
}

}  // namespace

ClipTextConfig::ClipTextConfig(const Config& c, const ClipTextDefaults& d)
    : ClipLayerConfig(layer_config(c, {.hidden_size = d.hidden_size,
                                       .intermediate_size = d.intermediate_size,
                                       .num_hidden_layers = 12,
                                       .num_attention_heads = d.num_attention_heads,
                                       .hidden_act = d.hidden_act,
                                       .causal = true})),
      vocab_size(c.size({"vocab_size"}, d.vocab_size)),
      max_position_embeddings(c.size({"max_position_embeddings"}, d.max_position_embeddings)) {}

ClipVisionConfig::ClipVisionConfig(const Config& c, bool siglip)
    : ClipLayerConfig(layer_config(c, {.hidden_size = 768,
                                       .intermediate_size = 3072,
                                       .num_hidden_layers = 12,
                                       .num_attention_heads = 12,
                                       .hidden_act = siglip ? "gelu_pytorch_tanh" : "quick_gelu",
                                       .is_siglip = siglip})),
      patches(c, siglip ? 16 : 32) {}

Config inner_config(const Config& c, const char* key) {
  const nlohmann::json* value = c.find({key});
  if (value && !value->is_object())
    throw Error(fmt::format("[{}] {} is {}, expected a mapping", c.source(), key, dump(*value).substr(0, 80)),
                R"(e.g. {"hidden_size": 768})");
  return Config(fmt::format("{}: {}", c.source(), key), value ? *value : nlohmann::json::object());
}

Tensor ClipTextEmbeddings::operator()(const Tensor& input_ids) const {
  Forward here(*this);
  require_positions("clip", input_ids.size(1), "max_position_embeddings", position_ids.size(1));
  const Tensor positions = getitem(position_ids, 1, 0, input_ids.size(1));  // (1, T)
  Tensor inputs_embeds = token_embedding(input_ids);                        // (N, T, C)
  require_input_grad(build(), inputs_embeds);
  const Tensor position_embeddings = position_embedding(positions);  // (1, T, C)
  return add(inputs_embeds, position_embeddings);
}

ClipEncoderLayer::ClipEncoderLayer(Module& parent, std::string_view name, const ClipLayerConfig& c)
    : Module(parent, name),
      self_attn(c.is_siglip ? add_first_norm(c) : *this, "self_attn",
                {.width = c.hidden_size,
                 .heads = c.num_attention_heads,
                 .call = {.mask = {}, .dropout = c.attention_dropout, .causal = c.causal, .has_kv_groups = false, .caches = false},
                 .heads_last = !c.is_siglip}),
      mlp(c.is_siglip ? add_second_norm(c) : add_first_norm(c), "mlp", {"fc1", "fc2", c.hidden_size, c.intermediate_size, c.hidden_act}) {
  if (!c.is_siglip) add_second_norm(c);
}

Module& ClipEncoderLayer::add_first_norm(const ClipLayerConfig& c) {
  layer_norm1 = std::make_unique<LayerNorm>(*this, "layer_norm1", c.hidden_size);
  return *this;
}

Module& ClipEncoderLayer::add_second_norm(const ClipLayerConfig& c) {
  layer_norm2 = std::make_unique<LayerNorm>(*this, "layer_norm2", c.hidden_size);
  return *this;
}

Tensor ClipEncoderLayer::operator()(const Tensor& x, const Tensor& mask) const {
  Forward here(*this);
  Tensor weights;  // eager attention's live until the layer returns
  Tensor residual = x;
  Tensor hidden = (*layer_norm1)(x);  // (N, T, C)
  hidden = run_attention(self_attn, hidden, &weights, mask);
  hidden = add(residual, hidden);
  residual = hidden;
  hidden = (*layer_norm2)(hidden);
  hidden = run_part(mlp, hidden);
  hidden = add(residual, hidden);
  return hidden;
}

ClipEncoder::ClipEncoder(Module& parent, std::string_view name, const ClipLayerConfig& c) : Module(parent, name) {
  for (int64_t i = 0; i < c.num_hidden_layers; ++i) layers.add(c);
}

Tensor ClipEncoder::operator()(const Tensor& inputs_embeds, const Tensor& mask, Tensors* states) {
  Forward here(*this);
  Tensor hidden = inputs_embeds;
  for (ClipEncoderLayer& layer : layers) {
    if (states) states->push_back(hidden);
    const auto run = [&layer, mask](const Tensor& x) { return layer(x, mask); };
    hidden = run_block(layer, run, hidden);
  }
  if (states) states->push_back(hidden);
  return hidden;
}

ClipVisionEmbeddings::Patches::Patches(Module& parent, std::string_view name, const ClipVisionConfig& c) : Module(parent, name) {
  weight = parameter("weight", {c.hidden_size, c.patches.num_channels, c.patches.patch_h, c.patches.patch_w});
  if (c.is_siglip) bias = parameter("bias", {c.hidden_size});
}

Tensor ClipVisionEmbeddings::project(const Tensor& pixel_values) const {
  Forward here(patch_embedding);
  Conv2dArgs args;
  args.stride_h = config.patches.patch_h;
  args.stride_w = config.patches.patch_w;
  Tensor patches = conv2d(to(pixel_values, patch_embedding.weight.dtype()), patch_embedding.weight, patch_embedding.bias, args);
  require_input_grad(build(), patches);
  return patches;  // (N, C, rows, columns)
}

Tensor ClipVisionEmbeddings::operator()(const Tensor& pixel_values) const {
  Forward here(*this);
  Tensor embeddings = transpose(flatten(project(pixel_values), 2), 1, 2);  // (N, patches, C)
  if (class_embedding) {
    const Tensor patch_embeds = embeddings, class_embeds = expand(class_embedding, {pixel_values.size(0), 1, -1});
    embeddings = cat({class_embeds, patch_embeds}, 1);  // (N, positions, C)
    return add(embeddings, position_embedding(position_ids));
  }
  return add(embeddings, position_embedding(position_ids));
}

}  // namespace plimsoll
