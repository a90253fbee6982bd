// transformers.models.dinov2: Dinov2ForImageClassification.
#include <cmath>

#include "model/family.h"
#include "nn/classification.h"
#include "nn/layers.h"
#include "nn/patch_embedding.h"
#include "nn/transformer.h"
#include "ops/pointwise.h"
#include "ops/reduce.h"
#include "ops/reshape.h"
#include "ops/upsample.h"

namespace plimsoll {

namespace {

struct Dinov2Config {
  explicit Dinov2Config(const Config& c)
      : patches(c, 14),
        hidden_size(c.size({"hidden_size"}, 768)),
        num_hidden_layers(c.size({"num_hidden_layers"}, 12)),
        num_attention_heads(c.size({"num_attention_heads"}, 12)),
        mlp_size(checked_mul(hidden_size, c.size({"mlp_ratio"}, 4))),
        hidden_act(c.text({"hidden_act"}, "gelu")),
        hidden_dropout_prob(c.number({"hidden_dropout_prob"}, 0.0)),
        attention_probs_dropout_prob(c.number({"attention_probs_dropout_prob"}, 0.0)),
        drop_path_rate(c.number({"drop_path_rate"}, 0.0)),
        qkv_bias(c.flag({"qkv_bias"}, true)),
        use_swiglu_ffn(c.flag({"use_swiglu_ffn"}, false)),
        use_mask_token(c.flag({"use_mask_token"}, true)) {
    reject_captured_outputs(c);
    c.require_divides("num_attention_heads", num_attention_heads, "hidden_size", hidden_size);
  }
  PatchConfig patches;
  int64_t hidden_size, num_hidden_layers, num_attention_heads, mlp_size;
  std::string hidden_act;
  double hidden_dropout_prob, attention_probs_dropout_prob, drop_path_rate;
  bool qkv_bias, use_swiglu_ffn, use_mask_token;
};

struct Dinov2Embeddings : Module {
  Dinov2Embeddings(Module& parent, std::string_view name, const Dinov2Config& c)
      : Module(parent, name),
        config(c),
        cls_token(parameter("cls_token", {1, 1, c.hidden_size})),
        mask_token(c.use_mask_token ? parameter("mask_token", {1, c.hidden_size}) : Tensor()),
        position_embeddings(parameter("position_embeddings", {1, c.patches.num_patches() + 1, c.hidden_size})) {}

  // Position embeddings for images of another size than the model's own, in fp32.
  Tensor interpolate_pos_encoding(const Tensor& embeddings, int64_t height, int64_t width) const {
    const int64_t positions = position_embeddings.size(1) - 1, dim = config.hidden_size;
    if (embeddings.size(1) - 1 == positions && height == width) return position_embeddings;
    const int64_t side = static_cast<int64_t>(std::sqrt(static_cast<double>(positions)));
    if (side * side != positions || config.patches.patch_h != config.patches.patch_w)
      throw Error("[dinov2] " + std::to_string(positions) + " positions are not a square, so they cannot be interpolated",
                  "use square images and patches, or images of image_size");
    const Tensor class_pos = slice(position_embeddings, 1, 0, 1);  // (1, 1, C)
    Tensor patch_pos = slice(position_embeddings, 1, 1, positions + 1);
    patch_pos = permute(reshape(patch_pos, {1, side, side, dim}), {0, 3, 1, 2});  // (1, C, side, side)
    const DType target = patch_pos.dtype();
    {
      Tensor wide = to(patch_pos, DType::float32);
      const Tensor resized = upsample_bicubic2d(wide, height / config.patches.patch_h, width / config.patches.patch_w);
      wide.reset();
      patch_pos = to(resized, target);  // (1, C, H, W)
    }
    patch_pos = view(permute(patch_pos, {0, 2, 3, 1}), {1, -1, dim});  // (1, H*W, C)
    return cat({class_pos, patch_pos}, 1);
  }

  Tensor operator()(const Tensor& pixel_values) const {
    Forward here(*this);
    Tensor embeddings = patch_embeddings(to(pixel_values, patch_embeddings.projection.weight.dtype()));  // (B, patches, C)
    const Tensor cls_tokens = expand(cls_token, {pixel_values.size(0), -1, -1});                         // (B, 1, C)
    embeddings = cat({cls_tokens, embeddings}, 1);                                                       // (B, T, C)
    embeddings = add(embeddings, interpolate_pos_encoding(embeddings, pixel_values.size(2), pixel_values.size(3)));
    embeddings = dropout(embeddings);
    return embeddings;
  }

  const Dinov2Config& config;
  Tensor cls_token;
  Tensor mask_token;  // only pre-training uses it: it never gets a gradient
  Tensor position_embeddings;
  PatchEmbeddings patch_embeddings{*this, "patch_embeddings", config.patches, config.hidden_size};
  Dropout dropout{*this, "dropout", config.hidden_dropout_prob};
};

struct Dinov2SelfAttention : Module {
  Dinov2SelfAttention(Module& parent, std::string_view name, const Dinov2Config& c) : Module(parent, name), config(c) {}

  Tensor operator()(const Tensor& x, Tensor* weights) const {
    Forward here(*this);
    const Dims heads{x.size(0), -1, config.num_attention_heads, config.hidden_size / config.num_attention_heads};
    const Tensor k = transpose(view(key(x), heads), 1, 2);  // (B, H, T, D)
    const Tensor v = transpose(view(value(x), heads), 1, 2);
    const Tensor q = transpose(view(query(x), heads), 1, 2);
    AttentionCall call;
    call.dropout = config.attention_probs_dropout_prob;
    call.causal = false;
    call.has_kv_groups = false;
    call.softmax_fp32 = false;
    call.cast_weights = false;
    Tensor context = attention(build(), q, k, v, call, weights);  // (B, T, H, D)
    context = reshape(context, {x.size(0), x.size(1), -1});       // (B, T, C)
    return context;
  }

  const Dinov2Config& config;
  Linear query{*this, "query", config.hidden_size, config.hidden_size, config.qkv_bias};
  Linear key{*this, "key", config.hidden_size, config.hidden_size, config.qkv_bias};
  Linear value{*this, "value", config.hidden_size, config.hidden_size, config.qkv_bias};
};

struct Dinov2SelfOutput : Module {
  Dinov2SelfOutput(Module& parent, std::string_view name, const Dinov2Config& c) : Module(parent, name), config(c) {}

  Tensor operator()(const Tensor& x) const {
    Forward here(*this);
    Tensor hidden = dense(x);  // (B, T, C)
    hidden = dropout(hidden);
    return hidden;
  }

  const Dinov2Config& config;
  Linear dense{*this, "dense", config.hidden_size, config.hidden_size};
  Dropout dropout{*this, "dropout", config.hidden_dropout_prob};
};

struct Dinov2Attention : Module {
  Dinov2Attention(Module& parent, std::string_view name, const Dinov2Config& c) : Module(parent, name), config(c) {}

  Tensor operator()(const Tensor& x) const {
    Forward here(*this);
    Tensor weights;                                                         // eager attention's weights live until here
    const Tensor self_attn_output = run_attention(attention, x, &weights);  // (B, T, C)
    return output(self_attn_output);
  }

  const Dinov2Config& config;
  Dinov2SelfAttention attention{*this, "attention", config};
  Dinov2SelfOutput output{*this, "output", config};
};

struct Dinov2LayerScale : Module {
  Dinov2LayerScale(Module& parent, std::string_view name, int64_t width) : Module(parent, name), lambda1(parameter("lambda1", {width})) {}

  Tensor operator()(const Tensor& x) const {
    Forward here(*this);
    return mul(x, lambda1);
  }

  Tensor lambda1;
};

// Dinov2MLP, and Dinov2SwiGLUFFN with two thirds of the width, rounded up to 8.
struct Dinov2MLP : Module {
  Dinov2MLP(Module& parent, std::string_view name, const Dinov2Config& c)
      : Module(parent, name), config(c), inner(c.use_swiglu_ffn ? (c.mlp_size * 2 / 3 + 7) / 8 * 8 : c.mlp_size) {}

  Tensor operator()(const Tensor& x) const {
    Forward here(*this);
    Tensor hidden = fc1(x);  // (B, T, F) or (B, T, 2F)
    if (!config.use_swiglu_ffn) {
      hidden = activation(config.hidden_act, hidden);
      hidden = fc2(hidden);  // (B, T, C)
      return hidden;
    }
    const Tensors halves = chunk(hidden, 2, -1);  // 2 x (B, T, F)
    Tensor gate = silu(halves[0]);
    const Tensor gated = mul(gate, halves[1]);
    gate.reset();
    return fc2(gated);  // (B, T, C)
  }

  const Dinov2Config& config;
  int64_t inner;
  Linear fc1{*this, config.use_swiglu_ffn ? "weights_in" : "fc1", config.hidden_size, config.use_swiglu_ffn ? 2 * inner : inner};
  Linear fc2{*this, config.use_swiglu_ffn ? "weights_out" : "fc2", inner, config.hidden_size};
};

// Stochastic depth by sample; the same module name for both residual branches.
struct Dinov2DropPath : Module {
  Dinov2DropPath(Module& parent, std::string_view name, double p) : Module(parent, name), p(p) {}

  Tensor operator()(const Tensor& x) const {
    if (p <= 0.0 || !tape().training) return x;
    Forward here(*this);
    Tensor random = filled(tape(), "rand", {x.size(0), 1, 1}, x.dtype());
    {
      const Tensor shifted = add_scalar(random);
      random = nondiff("floor", shifted, x.dtype());
    }
    return mul(div_scalar(x), random);
  }

  double p;
};

struct Dinov2Layer : Module {
  Dinov2Layer(Module& parent, std::string_view name, const Dinov2Config& c) : Module(parent, name), config(c) {}

  Tensor operator()(const Tensor& x) const {
    Forward here(*this);
    const Tensor hidden_norm = norm1(x);  // (B, T, C)
    Tensor attention_output = run_part(attention, hidden_norm);
    attention_output = layer_scale1(attention_output);
    const Tensor hidden = add(drop_path(attention_output), x);
    Tensor layer_output = norm2(hidden);
    layer_output = run_part(mlp, layer_output);
    layer_output = layer_scale2(layer_output);
    layer_output = add(drop_path(layer_output), hidden);
    return layer_output;
  }

  const Dinov2Config& config;
  LayerNorm norm1{*this, "norm1", config.hidden_size};
  Dinov2Attention attention{*this, "attention", config};
  Dinov2LayerScale layer_scale1{*this, "layer_scale1", config.hidden_size};
  Dinov2DropPath drop_path{*this, "drop_path", config.drop_path_rate};
  LayerNorm norm2{*this, "norm2", config.hidden_size};
  Dinov2MLP mlp{*this, "mlp", config};
  Dinov2LayerScale layer_scale2{*this, "layer_scale2", config.hidden_size};
};

struct Dinov2Encoder : Module {
  Dinov2Encoder(Module& parent, std::string_view name, const Dinov2Config& c) : Module(parent, name) {
    for (int64_t i = 0; i < c.num_hidden_layers; ++i) layer.add(c);
  }

  Tensor operator()(const Tensor& x) {
    Forward here(*this);
    Tensor hidden = x;
    for (Dinov2Layer& block : layer) {
      auto run = [&block](const Tensor& h) { return block(h); };
      hidden = run_block(block, run, hidden);
    }
    return hidden;
  }

  ModuleList<Dinov2Layer> layer{*this, "layer"};
};

struct Dinov2Model : Module {
  Dinov2Model(Module& parent, std::string_view name, const Dinov2Config& c) : Module(parent, name), config(c) {}

  Tensor operator()(const Tensor& pixel_values) {
    Forward here(*this);
    const Tensor embedding_output = embeddings(pixel_values);  // (B, T, C)
    const Tensor encoder_output = encoder(embedding_output);   // (B, T, C)
    return layernorm(encoder_output);
  }

  const Dinov2Config& config;
  Dinov2Embeddings embeddings{*this, "embeddings", config};
  Dinov2Encoder encoder{*this, "encoder", config};
  LayerNorm layernorm{*this, "layernorm", config.hidden_size};
};

struct Dinov2ForImageClassification : Model {
  Dinov2ForImageClassification(Build& build, const Config& c) : Model(build), config(c), classes(c) {}

  Output forward(const Batch& batch) override {
    const Tensor sequence_output = dinov2(batch.pixel_values);                          // (B, T, C)
    const Tensor cls_token = select(sequence_output, 1, 0);                             // (B, C)
    const Tensor patch_tokens = slice(sequence_output, 1, 1, sequence_output.size(1));  // (B, patches, C)
    Tensor average = mean(patch_tokens, {1}, false);                                    // (B, C)
    const Tensor linear_input = cat({cls_token, average}, 1);                           // (B, 2C)
    average.reset();
    const Tensor logits = classifier(linear_input);  // (B, labels)
    return {classes.loss(logits, batch.labels), {logits}};
  }

  Dinov2Config config;
  Classification classes;
  Dinov2Model dinov2{*this, "dinov2", config};
  Linear classifier{*this, "classifier", checked_mul(2, config.hidden_size), classes.num_labels};
};

std::unique_ptr<Model> make_dinov2(Build& build, const Config& config) {
  return std::make_unique<Dinov2ForImageClassification>(build, config);
}

}  // namespace

const Family& dinov2_family() {
  static const Family kFamily{
      .name = "dinov2",
      .models = {{"dinov2", {"Dinov2ForImageClassification"}, InputKind::image, 224, make_dinov2}},
      .presets = {{"dinov2-small", R"({"hidden_size":384,"num_attention_heads":6,"image_size":518})", 518},
                  {"dinov2-base", R"({"image_size":518})", 518},
                  {"dinov2-large", R"({"hidden_size":1024,"num_hidden_layers":24,"num_attention_heads":16,"image_size":518})", 518},
                  {"dinov2-giant",
                   R"({"hidden_size":1536,"num_hidden_layers":40,"num_attention_heads":24,"use_swiglu_ffn":true,"image_size":518})", 518}},
  };
  return kFamily;
}

}  // namespace plimsoll
