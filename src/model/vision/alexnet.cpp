// torchvision.models.alexnet: AlexNet.
#include "model/family.h"
#include "nn/vision.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

struct AlexNet : ImageClassifier {
  AlexNet(Build& build, const Config& c) : ImageClassifier(build) {
    require_known_arguments(c, "alexnet", {"dropout"});
    const double dropout = probability(c, "dropout", 0.5);
    conv(3, 64, {.kernel = 11, .stride = 4, .padding = 2});
    features.add<MaxPool2d>(PoolOptions{.kernel = 3, .stride = 2});
    conv(64, 192, {.kernel = 5, .padding = 2});
    features.add<MaxPool2d>(PoolOptions{.kernel = 3, .stride = 2});
    conv(192, 384, {.kernel = 3, .padding = 1});
    conv(384, 256, {.kernel = 3, .padding = 1});
    conv(256, 256, {.kernel = 3, .padding = 1});
    features.add<MaxPool2d>(PoolOptions{.kernel = 3, .stride = 2});
    classifier.add<Dropout>(dropout);
    classifier.add<Linear>(256 * 6 * 6, 4096);
    classifier.add<Activation>(Act::relu, true);
    classifier.add<Dropout>(dropout);
    classifier.add<Linear>(4096, 4096);
    classifier.add<Activation>(Act::relu, true);
    classifier.add<Linear>(4096, c.size({"num_classes"}, 1000));
  }

  void conv(int64_t in, int64_t out, const Conv2dOptions& options) {
    features.add<Conv2d>(in, out, options);
    features.add<Activation>(Act::relu, true);
  }

  Tensor operator()(const Tensor& pixels) override {
    Tensor x = features(pixels);  // (N, 256, H / 32, W / 32)
    x = avgpool(x);               // (N, 256, 6, 6)
    x = flatten(x, 1);            // (N, 9216)
    x = classifier(x);            // (N, classes)
    return x;
  }

  Sequential features{*this, "features"};
  AdaptiveAvgPool2d avgpool{*this, "avgpool", 6};
  Sequential classifier{*this, "classifier"};
};

std::unique_ptr<Model> make_alexnet(Build& build, const Config& config, const std::string&) {
  return std::make_unique<AlexNet>(build, config);
}

}  // namespace

const Family& alexnet_family() {
  static const Family kFamily{
      .name = "alexnet",
      .library = "torchvision",
      .models = torchvision_models(make_alexnet, {{"alexnet"}}),
  };
  return kFamily;
}

}  // namespace plimsoll
