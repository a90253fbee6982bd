// transformers.models.vit: ViTForImageClassification.
#include "model/family.h"
#include "nn/classification.h"
#include "nn/feed_forward.h"
#include "nn/layers.h"
#include "nn/patch_embedding.h"
#include "nn/transformer.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

struct ViTConfig {
  explicit ViTConfig(const Config& c)
      : patches(c, 16),
        hidden_size(c.size({"hidden_size"}, 768)),
        num_hidden_layers(c.size({"num_hidden_layers"}, 12)),
        num_attention_heads(c.size({"num_attention_heads"}, 12)),
        intermediate_size(c.size({"intermediate_size"}, 3072)),
        head_dim(c.size({"head_dim"}, hidden_size / num_attention_heads)),
        hidden_act(c.text({"hidden_act"}, "gelu")),
        hidden_dropout_prob(c.number({"hidden_dropout_prob"}, 0.0)),
        attention_probs_dropout_prob(c.number({"attention_probs_dropout_prob"}, 0.0)),
        qkv_bias(c.flag({"qkv_bias"}, true)) {
    reject_captured_outputs(c);
    if (!c.find({"head_dim"})) c.require_divides("num_attention_heads", num_attention_heads, "hidden_size", hidden_size);
  }
  PatchConfig patches;
  int64_t hidden_size, num_hidden_layers, num_attention_heads, intermediate_size, head_dim;
  std::string hidden_act;
  double hidden_dropout_prob, attention_probs_dropout_prob;
  bool qkv_bias;
};

struct ViTEmbeddings : Module {
  ViTEmbeddings(Module& parent, std::string_view name, const ViTConfig& c)
      : Module(parent, name),
        config(c),
        cls_token(parameter("cls_token", {1, 1, c.hidden_size})),
        position_embeddings(parameter("position_embeddings", {1, c.patches.num_patches() + 1, c.hidden_size})) {}

  Tensor operator()(const Tensor& pixel_values) const {
    Forward here(*this);
    if (pixel_values.size(2) != config.patches.image_h || pixel_values.size(3) != config.patches.image_w)
      throw Error("[vit] images of " + std::to_string(pixel_values.size(2)) + " x " + std::to_string(pixel_values.size(3)) +
                      " do not match image_size " + std::to_string(config.patches.image_h) + " x " + std::to_string(config.patches.image_w),
                  "set image_size to the side of the images");
    Tensor embeddings = patch_embeddings(pixel_values);                           // (B, patches, C)
    const Tensor cls_tokens = expand(cls_token, {pixel_values.size(0), -1, -1});  // (B, 1, C)
    embeddings = cat({cls_tokens, embeddings}, 1);                                // (B, T, C)
    embeddings = add(embeddings, position_embeddings);
    embeddings = dropout(embeddings);
    return embeddings;
  }

  const ViTConfig& config;
  Tensor cls_token, position_embeddings;
  PatchEmbeddings patch_embeddings{*this, "patch_embeddings", config.patches, config.hidden_size};
  Dropout dropout{*this, "dropout", config.hidden_dropout_prob};
};

struct ViTAttention : Module {
  ViTAttention(Module& parent, std::string_view name, const ViTConfig& c) : Module(parent, name), config(c) {}

  Tensor operator()(const Tensor& x, Tensor* weights) const {
    Forward here(*this);
    const Dims heads{x.size(0), x.size(1), -1, config.head_dim};
    const Tensor q = transpose(view(q_proj(x), heads), 1, 2);  // (B, H, T, D)
    const Tensor k = transpose(view(k_proj(x), heads), 1, 2);
    const Tensor v = transpose(view(v_proj(x), heads), 1, 2);
    AttentionCall call;
    call.dropout = config.attention_probs_dropout_prob;
    call.causal = false;
    call.has_kv_groups = false;
    Tensor out = attention(build(), q, k, v, call, weights);     // (B, T, H, D)
    out = contiguous(reshape(out, {x.size(0), x.size(1), -1}));  // (B, T, H*D)
    out = o_proj(out);                                           // (B, T, C)
    return out;
  }

  const ViTConfig& config;
  Linear q_proj{*this, "q_proj", config.hidden_size, (config.num_attention_heads * config.head_dim), config.qkv_bias};
  Linear k_proj{*this, "k_proj", config.hidden_size, (config.num_attention_heads * config.head_dim), config.qkv_bias};
  Linear v_proj{*this, "v_proj", config.hidden_size, (config.num_attention_heads * config.head_dim), config.qkv_bias};
  Linear o_proj{*this, "o_proj", (config.num_attention_heads * config.head_dim), config.hidden_size};
};

struct ViTLayer : Module {
  ViTLayer(Module& parent, std::string_view name, const ViTConfig& c) : Module(parent, name), config(c) {}

  Tensor operator()(const Tensor& x) const {
    Forward here(*this);
    Tensor weights;  // eager attention's weights live until the layer returns
    Tensor residual = x;
    Tensor hidden = layernorm_before(x);  // (B, T, C)
    hidden = run_attention(attention, hidden, &weights);
    hidden = dropout(hidden);
    hidden = add(hidden, residual);
    residual = hidden;
    hidden = layernorm_after(hidden);
    hidden = run_part(mlp, hidden);
    hidden = dropout(hidden);
    hidden = add(hidden, residual);
    return hidden;
  }

  const ViTConfig& config;
  ViTAttention attention{*this, "attention", config};
  LayerNorm layernorm_before{*this, "layernorm_before", config.hidden_size};
  LayerNorm layernorm_after{*this, "layernorm_after", config.hidden_size};
  FeedForward mlp{*this, "mlp", {"fc1", "fc2", config.hidden_size, config.intermediate_size, config.hidden_act}};
  Dropout dropout{*this, "dropout", config.hidden_dropout_prob};
};

struct ViTModel : Module {
  ViTModel(Module& parent, std::string_view name, const ViTConfig& c)
      : Module(parent, name), config(c), layernorm(add_layers(c), "layernorm", c.hidden_size) {}

  Module& add_layers(const ViTConfig& c) {
    for (int64_t i = 0; i < c.num_hidden_layers; ++i) layers.add(c);
    return *this;
  }

  Tensor operator()(const Tensor& images) {
    Forward here(*this);
    const Tensor pixel_values = to(images, embeddings.patch_embeddings.projection.weight.dtype());
    const Tensor embedding_output = embeddings(pixel_values);  // (B, T, C)
    Tensor hidden = embedding_output;
    for (ViTLayer& layer : layers) {
      auto run = [&layer](const Tensor& x) { return layer(x); };
      hidden = run_block(layer, run, hidden);
    }
    return layernorm(hidden);
  }

  const ViTConfig& config;
  ViTEmbeddings embeddings{*this, "embeddings", config};
  ModuleList<ViTLayer> layers{*this, "layers"};
  LayerNorm layernorm;
};

struct ViTForImageClassification : Model {
  ViTForImageClassification(Build& build, const Config& c) : Model(build), config(c), classes(c) {}

  Output forward(const Batch& batch) override {
    const Tensor sequence_output = vit(batch.pixel_values);      // (B, T, C)
    const Tensor pooled_output = select(sequence_output, 1, 0);  // (B, C)
    const Tensor logits = classifier(pooled_output);             // (B, labels)
    return {classes.loss(logits, batch.labels), {logits}};
  }

  ViTConfig config;
  Classification classes;
  ViTModel vit{*this, "vit", config};
  Linear classifier{*this, "classifier", config.hidden_size, classes.num_labels};
};

std::unique_ptr<Model> make_vit(Build& build, const Config& config) { return std::make_unique<ViTForImageClassification>(build, config); }

}  // namespace

const Family& vit_family() {
  static const Family kFamily{
      .name = "vit",
      .models = {{"vit", {"ViTForImageClassification"}, InputKind::image, 224, make_vit}},
      .presets = {{"vit-b16", R"({})", 224},
                  {"vit-s16", R"({"hidden_size":384,"num_attention_heads":6,"intermediate_size":1536})", 224},
                  {"vit-ti16", R"({"hidden_size":192,"num_attention_heads":3,"intermediate_size":768})", 224},
                  {"vit-b32", R"({"patch_size":32})", 224},
                  {"vit-l16", R"({"hidden_size":1024,"num_hidden_layers":24,"num_attention_heads":16,"intermediate_size":4096})", 224},
                  {"vit-l32",
                   R"({"hidden_size":1024,"num_hidden_layers":24,"num_attention_heads":16,"intermediate_size":4096,"patch_size":32})", 224},
                  {"vit-h14",
                   R"({"hidden_size":1280,"num_hidden_layers":32,"num_attention_heads":16,"intermediate_size":5120,"patch_size":14})",
                   224}},
  };
  return kFamily;
}

}  // namespace plimsoll
