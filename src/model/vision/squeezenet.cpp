// torchvision.models.squeezenet: SqueezeNet 1.0 and 1.1.
#include "model/family.h"
#include "nn/vision.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

struct Fire : Module {
  Fire(Module& parent, std::string_view name, int64_t in, int64_t squeeze_planes, int64_t expand_planes)
      : Module(parent, name),
        squeeze(*this, "squeeze", in, squeeze_planes, {.kernel = 1}),
        expand1x1(*this, "expand1x1", squeeze_planes, expand_planes, {.kernel = 1}),
        expand3x3(*this, "expand3x3", squeeze_planes, expand_planes, {.kernel = 3, .padding = 1}) {}

  Tensor operator()(const Tensor& input) const {
    Forward here(*this);
    const Tensor x = squeeze_activation(squeeze(input));       // (N, squeeze, H, W)
    const Tensor narrow = expand1x1_activation(expand1x1(x));  // (N, expand, H, W)
    const Tensor wide = expand3x3_activation(expand3x3(x));    // (N, expand, H, W)
    return cat({narrow, wide}, 1);                             // (N, 2 expand, H, W)
  }

  Conv2d squeeze;
  Activation squeeze_activation{*this, "squeeze_activation", Act::relu, true};
  Conv2d expand1x1;
  Activation expand1x1_activation{*this, "expand1x1_activation", Act::relu, true};
  Conv2d expand3x3;
  Activation expand3x3_activation{*this, "expand3x3_activation", Act::relu, true};
};

struct SqueezeNet : ImageClassifier {
  SqueezeNet(Build& build, const Config& c, bool newer) : ImageClassifier(build) {
    require_known_arguments(c, "squeezenet", {"dropout"});
    if (newer) {
      make_1_1();
    } else {
      make_1_0();
    }
    classifier.add<Dropout>(probability(c, "dropout", 0.5));
    classifier.add<Conv2d>(512, c.size({"num_classes"}, 1000), Conv2dOptions{.kernel = 1});
    classifier.add<Activation>(Act::relu, true);
    classifier.add<AdaptiveAvgPool2d>(1);
  }

  void pool() { features.add<MaxPool2d>(PoolOptions{.kernel = 3, .stride = 2, .ceil_mode = true}); }

  void make_1_0() {
    features.add<Conv2d>(3, 96, Conv2dOptions{.kernel = 7, .stride = 2});
    features.add<Activation>(Act::relu, true);
    pool();
    features.add<Fire>(96, 16, 64);
    features.add<Fire>(128, 16, 64);
    features.add<Fire>(128, 32, 128);
    pool();
    features.add<Fire>(256, 32, 128);
    features.add<Fire>(256, 48, 192);
    features.add<Fire>(384, 48, 192);
    features.add<Fire>(384, 64, 256);
    pool();
    features.add<Fire>(512, 64, 256);
  }

  void make_1_1() {
    features.add<Conv2d>(3, 64, Conv2dOptions{.kernel = 3, .stride = 2});
    features.add<Activation>(Act::relu, true);
    pool();
    features.add<Fire>(64, 16, 64);
    features.add<Fire>(128, 16, 64);
    pool();
    features.add<Fire>(128, 32, 128);
    features.add<Fire>(256, 32, 128);
    pool();
    features.add<Fire>(256, 48, 192);
    features.add<Fire>(384, 48, 192);
    features.add<Fire>(384, 64, 256);
    features.add<Fire>(512, 64, 256);
  }

  Tensor operator()(const Tensor& pixels) override {
    Tensor x = features(pixels);  // (N, 512, H / 16, W / 16)
    x = classifier(x);            // (N, classes, 1, 1)
    return flatten(x, 1);         // (N, classes)
  }

  Sequential features{*this, "features"};
  Sequential classifier{*this, "classifier"};
};

std::unique_ptr<Model> make_squeezenet(Build& build, const Config& config, const std::string& name) {
  return std::make_unique<SqueezeNet>(build, config, name == "squeezenet1_1");
}

}  // namespace

const Family& squeezenet_family() {
  static const Family kFamily{
      .name = "squeezenet",
      .library = "torchvision",
      .models = torchvision_models(make_squeezenet, {{"squeezenet1_0"}, {"squeezenet1_1"}}),
  };
  return kFamily;
}

}  // namespace plimsoll
