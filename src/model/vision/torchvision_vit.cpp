// torchvision.models.vision_transformer: VisionTransformer, from vit_b_16 to vit_h_14.
#include "model/family.h"
#include "nn/mlp.h"
#include "nn/multihead_attention.h"
#include "nn/vision.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

struct TorchvisionVitVariant {
  const char* name;
  int64_t patch_size, num_layers, num_heads, hidden_dim, mlp_dim;
};

constexpr TorchvisionVitVariant kTorchvisionVitVariants[] = {
    {"vit_b_16", 16, 12, 12, 768, 3072},  {"vit_b_32", 32, 12, 12, 768, 3072},  {"vit_l_16", 16, 24, 16, 1024, 4096},
    {"vit_l_32", 32, 24, 16, 1024, 4096}, {"vit_h_14", 14, 32, 16, 1280, 5120},
};

const TorchvisionVitVariant& torchvision_vit_variant(const std::string& name) {
  for (const TorchvisionVitVariant& v : kTorchvisionVitVariants)
    if (name == v.name) return v;
  throw Error("[vit] variant '" + name + "' is not known", "known: vit_b_16, vit_b_32, vit_l_16, vit_l_32, vit_h_14");
}

struct TorchvisionVitConfig {
  TorchvisionVitConfig(const Config& c, const TorchvisionVitVariant& v)
      : image_size(c.size({"image_size"}, 224)),
        patch_size(c.size({"patch_size"}, v.patch_size)),
        num_layers(c.size({"num_layers"}, v.num_layers)),
        num_heads(c.size({"num_heads"}, v.num_heads)),
        hidden_dim(c.size({"hidden_dim"}, v.hidden_dim)),
        mlp_dim(c.size({"mlp_dim"}, v.mlp_dim)),
        num_classes(c.size({"num_classes"}, 1000)),
        representation_size(c.optional_integer({"representation_size"})),
        dropout(c.number({"dropout"}, 0.0)),
        attention_dropout(c.number({"attention_dropout"}, 0.0)) {
    require_known_arguments(c, v.name,
                            {"image_size", "patch_size", "num_layers", "num_heads", "hidden_dim", "mlp_dim", "representation_size",
                             "dropout", "attention_dropout"});
    c.require_divides("patch_size", patch_size, "image_size", image_size);
    c.require_divides("num_heads", num_heads, "hidden_dim", hidden_dim);
  }
  int64_t image_size, patch_size, num_layers, num_heads, hidden_dim, mlp_dim, num_classes;
  std::optional<int64_t> representation_size;
  double dropout, attention_dropout;
};

struct EncoderBlock : Module {
  EncoderBlock(Module& parent, std::string_view name, const TorchvisionVitConfig& c) : Module(parent, name), config(c) {}

  Tensor operator()(const Tensor& input) const {
    Forward here(*this);
    Tensor x = ln_1(input);  // (B, T, C)
    x = self_attention(x);
    x = dropout(x);
    x = add(x, input);
    Tensor y = ln_2(x);  // (B, T, C)
    y = run_part(mlp, y);
    return add(x, y);
  }

  const TorchvisionVitConfig& config;
  LayerNorm ln_1{*this, "ln_1", config.hidden_dim};
  MultiheadAttention self_attention{*this, "self_attention", config.hidden_dim, config.num_heads, config.attention_dropout};
  Dropout dropout{*this, "dropout", config.dropout};
  LayerNorm ln_2{*this, "ln_2", config.hidden_dim};
  MLP mlp{*this, "mlp", config.hidden_dim, config.mlp_dim, config.dropout};
};

struct Encoder : Module {
  Encoder(Module& parent, std::string_view name, const TorchvisionVitConfig& c, int64_t seq_length)
      : Module(parent, name),
        config(c),
        pos_embedding(parameter("pos_embedding", {1, seq_length, c.hidden_dim})),
        ln(add_layers(c), "ln", c.hidden_dim) {}

  Module& add_layers(const TorchvisionVitConfig& c) {
    for (int64_t i = 0; i < c.num_layers; ++i) layers.add(c);
    return *this;
  }

  Tensor operator()(const Tensor& x) {
    Forward here(*this);
    const Tensor input = add(x, pos_embedding);  // (B, T, C)
    Tensor hidden = dropout(input);
    for (EncoderBlock& layer : layers)
      hidden = run_block(
          layer, [&layer](const Tensor& x) { return layer(x); }, hidden);
    return ln(hidden);
  }

  const TorchvisionVitConfig& config;
  Tensor pos_embedding;
  Dropout dropout{*this, "dropout", config.dropout};
  ModuleList<EncoderBlock> layers{*this, "layers"};
  LayerNorm ln;
};

struct Heads : Module {
  Heads(Module& parent, std::string_view name, const TorchvisionVitConfig& c) : Module(parent, name) {
    if (c.representation_size) pre_logits = std::make_unique<Linear>(*this, "pre_logits", c.hidden_dim, *c.representation_size);
    head = std::make_unique<Linear>(*this, "head", c.representation_size.value_or(c.hidden_dim), c.num_classes);
  }

  Tensor operator()(const Tensor& x) const {
    Forward here(*this);
    Tensor input = x;  // (B, C)
    if (pre_logits) {
      input = (*pre_logits)(input);  // (B, representation)
      input = tanh(input);
    }
    return (*head)(input);  // (B, classes)
  }

  std::unique_ptr<Linear> pre_logits, head;
};

struct VisionTransformer : ImageClassifier {
  VisionTransformer(Build& build, const TorchvisionVitConfig& c)
      : ImageClassifier(build), config(c), class_token(parameter("class_token", {1, 1, c.hidden_dim})) {}

  Tensor process_input(const Tensor& pixels) const {
    if (pixels.size(2) != config.image_size || pixels.size(3) != config.image_size)
      throw Error("[vit] images of " + std::to_string(pixels.size(2)) + " pixels, but image_size is " + std::to_string(config.image_size),
                  "make the image side and image_size the same");
    const int64_t side = config.image_size / config.patch_size;
    Tensor x = conv_proj(pixels);                                      // (B, C, side, side)
    x = reshape(x, {pixels.size(0), config.hidden_dim, side * side});  // (B, C, side * side)
    return permute(x, {0, 2, 1});                                      // (B, side * side, C)
  }

  Tensor operator()(const Tensor& pixels) override {
    Tensor x = process_input(pixels);
    const Tensor batch_class_token = expand(class_token, {x.size(0), -1, -1});  // (B, 1, C)
    x = cat({batch_class_token, x}, 1);                                         // (B, T, C)
    x = encoder(x);
    x = select(x, 1, 0);  // (B, C)
    x = heads(x);         // (B, classes)
    return x;
  }

  TorchvisionVitConfig config;
  Tensor class_token;
  Conv2d conv_proj{*this, "conv_proj", 3, config.hidden_dim, {.kernel = config.patch_size, .stride = config.patch_size}};
  Encoder encoder{*this, "encoder", config, (config.image_size / config.patch_size) * (config.image_size / config.patch_size) + 1};
  Heads heads{*this, "heads", config};
};

std::unique_ptr<Model> make_torchvision_vit(Build& build, const Config& config, const std::string& name) {
  return std::make_unique<VisionTransformer>(build, TorchvisionVitConfig(config, torchvision_vit_variant(name)));
}

}  // namespace

const Family& torchvision_vit_family() {
  static const Family kFamily{
      .name = "torchvision_vit",
      .library = "torchvision",
      .models = torchvision_models(make_torchvision_vit, {{"vit_b_16"}, {"vit_b_32"}, {"vit_l_16"}, {"vit_l_32"}, {"vit_h_14"}}),
  };
  return kFamily;
}

}  // namespace plimsoll
