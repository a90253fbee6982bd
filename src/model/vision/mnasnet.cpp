// torchvision.models.mnasnet: MNASNet.
#include "model/family.h"
#include "nn/vision.h"
#include "ops/pointwise.h"
#include "ops/reduce.h"

namespace plimsoll {

namespace {

struct MnasnetVariant {
  const char* name;
  double alpha;
};

constexpr MnasnetVariant kMnasnetVariants[] = {{"mnasnet0_5", 0.5}, {"mnasnet0_75", 0.75}, {"mnasnet1_0", 1.0}, {"mnasnet1_3", 1.3}};

struct MnasnetResidual : Module {
  MnasnetResidual(Module& parent, std::string_view name, int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t factor)
      : Module(parent, name), apply_residual(in == out && stride == 1) {
    const int64_t mid = in * factor;
    add_conv(layers, in, mid, {.kernel = 1}, true);
    add_conv(layers, mid, mid, {.kernel = kernel, .stride = stride, .padding = kernel / 2, .groups = mid}, true);
    add_conv(layers, mid, out, {.kernel = 1}, false);
  }

  Tensor operator()(const Tensor& input) const {
    Forward here(*this);
    if (apply_residual) return add(layers(input), input);  // (N, C, H, W)
    return layers(input);                                  // (N, out, H / stride, W / stride)
  }

  bool apply_residual;
  Sequential layers{*this, "layers"};
};

struct Stack : Sequential {
  Stack(Module& parent, std::string_view name, int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t factor, int repeats)
      : Sequential(parent, name) {
    add<MnasnetResidual>(in, out, kernel, stride, factor);
    for (int i = 1; i < repeats; ++i) add<MnasnetResidual>(out, out, kernel, 1, factor);
  }
};

struct MNASNet : ImageClassifier {
  MNASNet(Build& build, const Config& c, double alpha) : ImageClassifier(build) {
    require_known_arguments(c, "mnasnet", {"dropout"});
    int64_t depths[8] = {32, 16, 24, 40, 80, 96, 192, 320};
    for (int64_t& d : depths) d = make_divisible(static_cast<double>(d) * alpha, 8);
    add_conv(layers, 3, depths[0], {.kernel = 3, .stride = 2, .padding = 1}, true);
    add_conv(layers, depths[0], depths[0], {.kernel = 3, .padding = 1, .groups = depths[0]}, true);
    add_conv(layers, depths[0], depths[1], {.kernel = 1}, false);
    layers.add<Stack>(depths[1], depths[2], 3, 2, 3, 3);
    layers.add<Stack>(depths[2], depths[3], 5, 2, 3, 3);
    layers.add<Stack>(depths[3], depths[4], 5, 2, 6, 3);
    layers.add<Stack>(depths[4], depths[5], 3, 1, 6, 2);
    layers.add<Stack>(depths[5], depths[6], 5, 2, 6, 4);
    layers.add<Stack>(depths[6], depths[7], 3, 1, 6, 1);
    add_conv(layers, depths[7], 1280, {.kernel = 1}, true);
    classifier.add<InplaceDropout>(probability(c, "dropout", 0.2));
    classifier.add<Linear>(1280, c.size({"num_classes"}, 1000));
  }

  Tensor operator()(const Tensor& pixels) override {
    Tensor x = layers(pixels);   // (N, 1280, H / 32, W / 32)
    x = mean(x, {2, 3}, false);  // (N, 1280)
    return classifier(x);        // (N, classes)
  }

  Sequential layers{*this, "layers"};
  Sequential classifier{*this, "classifier"};
};

std::unique_ptr<Model> make_mnasnet(Build& build, const Config& config, const std::string& name) {
  for (const MnasnetVariant& v : kMnasnetVariants)
    if (name == v.name) return std::make_unique<MNASNet>(build, config, v.alpha);
  throw Error("[mnasnet] '" + name + "' is not one of its variants", "see the list of models");
}

}  // namespace

const Family& mnasnet_family() {
  static const Family kFamily{
      .name = "mnasnet",
      .library = "torchvision",
      .models = torchvision_models(make_mnasnet, {{"mnasnet0_5"}, {"mnasnet0_75"}, {"mnasnet1_0"}, {"mnasnet1_3"}}),
  };
  return kFamily;
}

}  // namespace plimsoll
