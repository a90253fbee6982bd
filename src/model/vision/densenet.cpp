// torchvision.models.densenet: DenseNet.
#include "model/family.h"
#include "nn/vision.h"
#include "ops/pointwise.h"
#include "ops/pool.h"
#include "ops/reshape.h"
#include "tensor/checkpoint.h"

namespace plimsoll {

namespace {

struct DensenetVariant {
  const char* name;
  int64_t growth_rate;
  int64_t block_config[4];
  int64_t num_init_features;
};

constexpr DensenetVariant kDensenetVariants[] = {
    {"densenet121", 32, {6, 12, 24, 16}, 64},
    {"densenet161", 48, {6, 12, 36, 24}, 96},
    {"densenet169", 32, {6, 12, 32, 32}, 64},
    {"densenet201", 32, {6, 12, 48, 32}, 64},
};

struct DenseNetConfig {
  DenseNetConfig(const Config& c, const DensenetVariant& v)
      : variant(v),
        bn_size(c.size({"bn_size"}, 4)),
        num_classes(c.size({"num_classes"}, 1000)),
        drop_rate(probability(c, "drop_rate", 0.0)),
        memory_efficient(c.flag({"memory_efficient"}, false)) {
    require_known_arguments(c, "densenet", {"bn_size", "drop_rate", "memory_efficient"});
  }
  const DensenetVariant& variant;
  int64_t bn_size, num_classes;
  double drop_rate;
  bool memory_efficient;
};

struct DenseLayer : Module {
  DenseLayer(Module& parent, std::string_view name, const DenseNetConfig& c, int64_t in)
      : Module(parent, name),
        config(c),
        inner(checked_mul(c.bn_size, c.variant.growth_rate)),
        norm1(*this, "norm1", in),
        conv1(*this, "conv1", in, inner, {.kernel = 1, .bias = false}) {}

  Tensor bn_function(const Tensors& inputs) const {
    const Tensor concated_features = cat(inputs, 1);        // (N, in, H, W)
    const Tensor normed = relu1(norm1(concated_features));  // (N, in, H, W)
    return conv1(normed);                                   // (N, inner, H, W)
  }

  // A checkpoint keeps all the features it joins; they live anyway, as inputs of the layers after it.
  Tensor call_checkpoint_bottleneck(const Tensors& inputs) const {
    static const CheckpointStyle kPlain;
    return checkpoint(
        tape(), kPlain, [this](const Tensors& in) -> Tensors { return {bn_function(in)}; }, inputs)[0];
  }

  Tensor operator()(const Tensors& prev_features) const {
    Forward here(*this);
    const Tensor bottleneck_output = config.memory_efficient ? call_checkpoint_bottleneck(prev_features) : bn_function(prev_features);
    Tensor new_features = conv2(relu2(norm2(bottleneck_output)));  // (N, growth, H, W)
    if (config.drop_rate > 0) new_features = dropout(new_features, config.drop_rate);
    return new_features;
  }

  const DenseNetConfig& config;
  int64_t inner;
  BatchNorm2d norm1;
  Activation relu1{*this, "relu1", Act::relu, true};
  Conv2d conv1;
  BatchNorm2d norm2{*this, "norm2", inner};
  Activation relu2{*this, "relu2", Act::relu, true};
  Conv2d conv2{*this, "conv2", inner, config.variant.growth_rate, {.kernel = 3, .padding = 1, .bias = false}};
};

struct DenseBlock : Module {
  DenseBlock(Module& parent, std::string_view name, const DenseNetConfig& c, int64_t in, int64_t num_layers) : Module(parent, name) {
    for (int64_t i = 0; i < num_layers; ++i)
      layers.emplace_back(*this, "denselayer" + std::to_string(i + 1), c, in + i * c.variant.growth_rate);
  }

  Tensor operator()(const Tensor& init_features) const {
    Forward here(*this);
    Tensors features{init_features};
    for (const DenseLayer& layer : layers) features.push_back(layer(features));
    return cat(features, 1);  // (N, in + layers x growth, H, W)
  }

  std::deque<DenseLayer> layers;
};

struct Transition : Sequential {
  Transition(Module& parent, std::string_view name, int64_t in, int64_t out) : Sequential(parent, name) {
    add_named<BatchNorm2d>("norm", in);
    add_named<Activation>("relu", Act::relu, true);
    add_named<Conv2d>("conv", in, out, Conv2dOptions{.kernel = 1, .bias = false});
    add_named<AvgPool2d>("pool", PoolOptions{.kernel = 2, .stride = 2});
  }
};

struct DenseNet : ImageClassifier {
  DenseNet(Build& build, const Config& c, const DensenetVariant& v) : ImageClassifier(build), config(c, v) {}

  int64_t make_features() {
    int64_t width = config.variant.num_init_features;
    features.add_named<Conv2d>("conv0", 3, width, Conv2dOptions{.kernel = 7, .stride = 2, .padding = 3, .bias = false});
    features.add_named<BatchNorm2d>("norm0", width);
    features.add_named<Activation>("relu0", Act::relu, true);
    features.add_named<MaxPool2d>("pool0", PoolOptions{.kernel = 3, .stride = 2, .padding = 1});
    for (int i = 0; i < 4; ++i) {
      const int64_t layers = config.variant.block_config[i];
      const std::string number = std::to_string(i + 1);
      features.add_named<DenseBlock>("denseblock" + number, config, width, layers);
      width += layers * config.variant.growth_rate;
      if (i == 3) break;
      features.add_named<Transition>("transition" + number, width, width / 2);
      width /= 2;
    }
    features.add_named<BatchNorm2d>("norm5", width);
    return width;
  }

  Tensor operator()(const Tensor& pixels) override {
    const Tensor x = features(pixels);     // (N, C, H / 32, W / 32)
    Tensor out = relu_(x);                 // the same memory
    out = adaptive_avg_pool2d(out, 1, 1);  // (N, C, 1, 1)
    out = flatten(out, 1);                 // (N, C)
    out = classifier(out);                 // (N, classes)
    return out;
  }

  DenseNetConfig config;
  Sequential features{*this, "features"};
  Linear classifier{*this, "classifier", make_features(), config.num_classes};
};

std::unique_ptr<Model> make_densenet(Build& build, const Config& config, const std::string& name) {
  for (const DensenetVariant& v : kDensenetVariants)
    if (name == v.name) return std::make_unique<DenseNet>(build, config, v);
  throw Error("[densenet] '" + name + "' is not one of its variants", "see the list of models");
}

}  // namespace

const Family& densenet_family() {
  static const Family kFamily{
      .name = "densenet",
      .library = "torchvision",
      .models = torchvision_models(make_densenet, {{"densenet121"}, {"densenet161"}, {"densenet169"}, {"densenet201"}}),
  };
  return kFamily;
}

}  // namespace plimsoll
