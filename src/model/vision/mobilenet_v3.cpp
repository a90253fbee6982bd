// torchvision.models.mobilenetv3: MobileNetV3, large and small.
#include "model/family.h"
#include "nn/vision.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

// InvertedResidualConfig, before the width multiplier.
struct Bneck {
  int64_t in, kernel, expanded, out;
  bool use_se;
  Act act;
  int64_t stride, dilation;
};

constexpr Act RE = Act::relu, HS = Act::hardswish;

// `tail` divides the channels of the last stage (reduced_tail), `dilation` replaces its stride (dilated).
std::vector<Bneck> large_setting(int64_t tail, int64_t dilation) {
  return {
      {16, 3, 16, 16, false, RE, 1, 1},
      {16, 3, 64, 24, false, RE, 2, 1},
      {24, 3, 72, 24, false, RE, 1, 1},
      {24, 5, 72, 40, true, RE, 2, 1},
      {40, 5, 120, 40, true, RE, 1, 1},
      {40, 5, 120, 40, true, RE, 1, 1},
      {40, 3, 240, 80, false, HS, 2, 1},
      {80, 3, 200, 80, false, HS, 1, 1},
      {80, 3, 184, 80, false, HS, 1, 1},
      {80, 3, 184, 80, false, HS, 1, 1},
      {80, 3, 480, 112, true, HS, 1, 1},
      {112, 3, 672, 112, true, HS, 1, 1},
      {112, 5, 672, 160 / tail, true, HS, 2, dilation},
      {160 / tail, 5, 960 / tail, 160 / tail, true, HS, 1, dilation},
      {160 / tail, 5, 960 / tail, 160 / tail, true, HS, 1, dilation},
  };
}

std::vector<Bneck> small_setting(int64_t tail, int64_t dilation) {
  return {
      {16, 3, 16, 16, true, RE, 2, 1},
      {16, 3, 72, 24, false, RE, 2, 1},
      {24, 3, 88, 24, false, RE, 1, 1},
      {24, 5, 96, 40, true, HS, 2, 1},
      {40, 5, 240, 40, true, HS, 1, 1},
      {40, 5, 240, 40, true, HS, 1, 1},
      {40, 5, 120, 48, true, HS, 1, 1},
      {48, 5, 144, 48, true, HS, 1, 1},
      {48, 5, 288, 96 / tail, true, HS, 2, dilation},
      {96 / tail, 5, 576 / tail, 96 / tail, true, HS, 1, dilation},
      {96 / tail, 5, 576 / tail, 96 / tail, true, HS, 1, dilation},
  };
}

struct MobilenetV3Residual : Module {
  MobilenetV3Residual(Module& parent, std::string_view name, const Bneck& c)
      : Module(parent, name), use_res_connect(c.stride == 1 && c.in == c.out) {
    if (c.expanded != c.in) block.add<Conv2dNormActivation>(c.in, c.expanded, ConvNormOptions{.kernel = 1, .act = c.act});
    block.add<Conv2dNormActivation>(
        c.expanded, c.expanded,
        ConvNormOptions{
            .kernel = c.kernel, .stride = c.dilation > 1 ? 1 : c.stride, .groups = c.expanded, .dilation = c.dilation, .act = c.act});
    if (c.use_se) {
      const int64_t squeeze = make_divisible(static_cast<double>(c.expanded / 4), 8);
      block.add<SqueezeExcitation>(c.expanded, squeeze, SqueezeExcitationOptions{.scale_activation = Act::hardsigmoid});
    }
    block.add<Conv2dNormActivation>(c.expanded, c.out, ConvNormOptions{.kernel = 1, .act = Act::none});
  }

  Tensor operator()(const Tensor& input) const {
    Forward here(*this);
    Tensor result = block(input);  // (N, out, H / stride, W / stride)
    if (use_res_connect) result = add_(result, input);
    return result;
  }

  bool use_res_connect;
  Sequential block{*this, "block"};
};

struct MobileNetV3 : ImageClassifier {
  MobileNetV3(Build& build, const Config& c, bool large) : ImageClassifier(build) {
    require_known_arguments(c, "mobilenet_v3", {"width_mult", "reduced_tail", "dilated", "dropout"});
    const double width_mult = c.number({"width_mult"}, 1.0);
    auto adjust = [width_mult](int64_t channels) { return make_divisible(static_cast<double>(channels) * width_mult, 8); };
    const int64_t tail = c.flag({"reduced_tail"}, false) ? 2 : 1, dilation = c.flag({"dilated"}, false) ? 2 : 1;
    std::vector<Bneck> setting = large ? large_setting(tail, dilation) : small_setting(tail, dilation);
    for (Bneck& b : setting) {
      b.in = adjust(b.in);
      b.expanded = adjust(b.expanded);
      b.out = adjust(b.out);
    }
    const int64_t last_channel = adjust((large ? 1280 : 1024) / tail), last_out = setting.back().out;
    features.add<Conv2dNormActivation>(3, setting.front().in, ConvNormOptions{.stride = 2, .act = HS});
    for (const Bneck& b : setting) features.add<MobilenetV3Residual>(b);
    features.add<Conv2dNormActivation>(last_out, 6 * last_out, ConvNormOptions{.kernel = 1, .act = HS});
    classifier.add<Linear>(6 * last_out, last_channel);
    classifier.add<Activation>(HS, true);
    classifier.add<InplaceDropout>(probability(c, "dropout", 0.2));
    classifier.add<Linear>(last_channel, c.size({"num_classes"}, 1000));
  }

  Tensor operator()(const Tensor& pixels) override {
    Tensor x = features(pixels);  // (N, 6 out, H / 32, W / 32)
    x = avgpool(x);               // (N, 6 out, 1, 1)
    x = flatten(x, 1);            // (N, 6 out)
    x = classifier(x);            // (N, classes)
    return x;
  }

  Sequential features{*this, "features"};
  AdaptiveAvgPool2d avgpool{*this, "avgpool", 1};
  Sequential classifier{*this, "classifier"};
};

std::unique_ptr<Model> make_mobilenet_v3(Build& build, const Config& config, const std::string& name) {
  return std::make_unique<MobileNetV3>(build, config, name == "mobilenet_v3_large");
}

}  // namespace

const Family& mobilenet_v3_family() {
  static const Family kFamily{
      .name = "mobilenet_v3",
      .library = "torchvision",
      .models = torchvision_models(make_mobilenet_v3, {{"mobilenet_v3_large"}, {"mobilenet_v3_small"}}),
  };
  return kFamily;
}

}  // namespace plimsoll
