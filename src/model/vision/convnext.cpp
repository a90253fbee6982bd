// torchvision.models.convnext: ConvNeXt, from convnext_tiny to convnext_large.
#include "model/family.h"
#include "nn/stochastic_depth.h"
#include "nn/vision.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

struct ConvNextVariant {
  const char* name;
  int64_t channels[4], num_layers[4];
  double stochastic_depth_prob;
};

constexpr ConvNextVariant kConvNextVariants[] = {
    {"convnext_tiny", {96, 192, 384, 768}, {3, 3, 9, 3}, 0.1},
    {"convnext_small", {96, 192, 384, 768}, {3, 3, 27, 3}, 0.4},
    {"convnext_base", {128, 256, 512, 1024}, {3, 3, 27, 3}, 0.5},
    {"convnext_large", {192, 384, 768, 1536}, {3, 3, 27, 3}, 0.5},
};

const ConvNextVariant& convnext_variant(const std::string& name) {
  for (const ConvNextVariant& v : kConvNextVariants)
    if (name == v.name) return v;
  throw Error("[convnext] variant '" + name + "' is not known", "known: convnext_tiny, convnext_small, convnext_base, convnext_large");
}

struct LayerNorm2d : LayerNorm {
  using LayerNorm::LayerNorm;
  Tensor operator()(const Tensor& input) const {
    Tensor x = permute(input, {0, 2, 3, 1});  // (N, H, W, C)
    x = LayerNorm::operator()(x);
    return permute(x, {0, 3, 1, 2});  // (N, C, H, W)
  }
};

// The Sequential inside a CNBlock: a depthwise convolution and an MLP on channels-last positions.
struct ConvNextBranch : Module {
  ConvNextBranch(Module& parent, std::string_view name, int64_t dim)
      : Module(parent, name),
        conv(*this, "0", dim, dim, {.kernel = 7, .padding = 3, .groups = dim}),
        norm(*this, "2", dim),
        expand(*this, "3", dim, 4 * dim),
        project(*this, "5", 4 * dim, dim) {}

  Tensor operator()(const Tensor& x) const {
    Tensor input = conv(x);                // (N, C, H, W)
    input = permute(input, {0, 2, 3, 1});  // (N, H, W, C)
    input = norm(input);
    input = expand(input);  // (N, H, W, 4C)
    input = gelu(input);
    input = project(input);               // (N, H, W, C)
    return permute(input, {0, 3, 1, 2});  // (N, C, H, W)
  }

  Conv2d conv;
  LayerNorm norm;
  Linear expand, project;
};

struct CNBlock : Module {
  CNBlock(Module& parent, std::string_view name, int64_t dim, double probability)
      : Module(parent, name), layer_scale(parameter("layer_scale", {dim, 1, 1})), block(*this, "block", dim), drop(probability) {}

  Tensor operator()(const Tensor& input) const {
    Forward here(*this);
    Tensor result;  // (N, C, H, W)
    {
      const Tensor branch = block(input);
      result = mul(layer_scale, branch);
    }
    result = stochastic_depth(result, drop);
    result = add_(result, input);
    return result;
  }

  Tensor layer_scale;
  ConvNextBranch block;
  double drop;
};

// One entry of `features` after the stem: a stage of blocks, or the norm and convolution between two stages.
struct ConvNextStage : ModuleList<CNBlock> {
  using ModuleList<CNBlock>::ModuleList;
  Tensor operator()(const Tensor& x) {
    Tensor input = x;
    for (CNBlock& block : *this) input = run_part(block, input);
    return input;
  }
};

struct Downsampling : Module {
  Downsampling(Module& parent, std::string_view name, int64_t in, int64_t out)
      : Module(parent, name), norm(*this, "0", in), conv(*this, "1", in, out, {.kernel = 2, .stride = 2}) {}
  Tensor operator()(const Tensor& x) const {
    const Tensor input = norm(x);  // (N, C, H, W)
    return conv(input);            // (N, 2C, H / 2, W / 2)
  }
  LayerNorm2d norm;
  Conv2d conv;
};

struct Stem : Module {
  Stem(Module& parent, std::string_view name, int64_t out)
      : Module(parent, name), conv(*this, "0", 3, out, {.kernel = 4, .stride = 4}), norm(*this, "1", out) {}
  Tensor operator()(const Tensor& x) const {
    const Tensor input = conv(x);  // (N, C, H / 4, W / 4)
    return norm(input);
  }
  Conv2d conv;
  LayerNorm2d norm;
};

struct Classifier : Module {
  Classifier(Module& parent, std::string_view name, int64_t channels, int64_t classes)
      : Module(parent, name), norm(*this, "0", channels), linear(*this, "2", channels, classes) {}
  Tensor operator()(const Tensor& x) const {
    Tensor input = norm(x);     // (N, C, 1, 1)
    input = flatten(input, 1);  // (N, C)
    return linear(input);       // (N, classes)
  }
  LayerNorm2d norm;
  Linear linear;
};

struct ConvNeXt : ImageClassifier {
  ConvNeXt(Build& build, const Config& c, const ConvNextVariant& v)
      : ImageClassifier(build),
        avgpool(add_features(c, v), "avgpool", 1),
        classifier(*this, "classifier", v.channels[3], c.size({"num_classes"}, 1000)) {}

  Module& add_features(const Config& c, const ConvNextVariant& v) {
    require_known_arguments(c, v.name, {"stochastic_depth_prob", "layer_scale"});
    const double probability = c.number({"stochastic_depth_prob"}, v.stochastic_depth_prob);
    int64_t total = 0, id = 0;
    for (int64_t n : v.num_layers) total += n;
    features.add<Stem>(v.channels[0]);
    for (int i = 0; i < 4; ++i) {
      ConvNextStage& stage = features.add<ConvNextStage>();
      for (int64_t k = 0; k < v.num_layers[i]; ++k) {
        stage.add(v.channels[i], probability * static_cast<double>(id) / (static_cast<double>(total) - 1.0));
        ++id;
      }
      if (i < 3) features.add<Downsampling>(v.channels[i], v.channels[i + 1]);
    }
    return *this;
  }

  Tensor operator()(const Tensor& pixels) override {
    Tensor x = features(pixels);  // (N, C, H / 32, W / 32)
    x = avgpool(x);               // (N, C, 1, 1)
    x = classifier(x);            // (N, classes)
    return x;
  }

  Sequential features{*this, "features"};
  AdaptiveAvgPool2d avgpool;
  Classifier classifier;
};

std::unique_ptr<Model> make_convnext(Build& build, const Config& config, const std::string& name) {
  return std::make_unique<ConvNeXt>(build, config, convnext_variant(name));
}

}  // namespace

const Family& convnext_family() {
  static const Family kFamily{
      .name = "convnext",
      .library = "torchvision",
      .models = torchvision_models(make_convnext, {{"convnext_tiny"}, {"convnext_small"}, {"convnext_base"}, {"convnext_large"}}),
  };
  return kFamily;
}

}  // namespace plimsoll
