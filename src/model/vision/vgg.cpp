// torchvision.models.vgg: VGG, with and without batch norm.
#include "model/family.h"
#include "nn/vision.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

struct VggVariant {
  const char* name;
  int convolutions[5];  // in each stage, before its pool
};

constexpr VggVariant kVggVariants[] = {
    {"vgg11", {1, 1, 2, 2, 2}},
    {"vgg13", {2, 2, 2, 2, 2}},
    {"vgg16", {2, 2, 3, 3, 3}},
    {"vgg19", {2, 2, 4, 4, 4}},
};
constexpr int64_t kChannels[5] = {64, 128, 256, 512, 512};

struct VGG : ImageClassifier {
  VGG(Build& build, const Config& c, const VggVariant& v, bool batch_norm) : ImageClassifier(build) {
    require_known_arguments(c, "vgg", {"dropout"});
    make_features(v, batch_norm);
    const double dropout = probability(c, "dropout", 0.5);
    classifier.add<Linear>(512 * 7 * 7, 4096);
    classifier.add<Activation>(Act::relu, true);
    classifier.add<Dropout>(dropout);
    classifier.add<Linear>(4096, 4096);
    classifier.add<Activation>(Act::relu, true);
    classifier.add<Dropout>(dropout);
    classifier.add<Linear>(4096, c.size({"num_classes"}, 1000));
  }

  void make_features(const VggVariant& v, bool batch_norm) {
    int64_t in = 3;
    for (int stage = 0; stage < 5; ++stage) {
      const int64_t out = kChannels[stage];
      for (int i = 0; i < v.convolutions[stage]; ++i) {
        features.add<Conv2d>(in, out, Conv2dOptions{.kernel = 3, .padding = 1});
        if (batch_norm) features.add<BatchNorm2d>(out);
        features.add<Activation>(Act::relu, true);
        in = out;
      }
      features.add<MaxPool2d>(PoolOptions{.kernel = 2, .stride = 2});
    }
  }

  Tensor operator()(const Tensor& pixels) override {
    Tensor x = features(pixels);  // (N, 512, H / 32, W / 32)
    x = avgpool(x);               // (N, 512, 7, 7)
    x = flatten(x, 1);            // (N, 25088)
    x = classifier(x);            // (N, classes)
    return x;
  }

  Sequential features{*this, "features"};
  AdaptiveAvgPool2d avgpool{*this, "avgpool", 7};
  Sequential classifier{*this, "classifier"};
};

std::unique_ptr<Model> make_vgg(Build& build, const Config& config, const std::string& name) {
  for (const VggVariant& v : kVggVariants) {
    if (name == v.name) return std::make_unique<VGG>(build, config, v, false);
    if (name == std::string(v.name) + "_bn") return std::make_unique<VGG>(build, config, v, true);
  }
  throw Error("[vgg] '" + name + "' is not one of its variants", "see the list of models");
}

}  // namespace

const Family& vgg_family() {
  static const Family kFamily{
      .name = "vgg",
      .library = "torchvision",
      .models = torchvision_models(make_vgg,
                                   {{"vgg11"}, {"vgg11_bn"}, {"vgg13"}, {"vgg13_bn"}, {"vgg16"}, {"vgg16_bn"}, {"vgg19"}, {"vgg19_bn"}}),
  };
  return kFamily;
}

}  // namespace plimsoll
