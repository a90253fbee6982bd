// torchvision.models.efficientnet: EfficientNet B0 to B7 and V2 S, M, L.
#include <cmath>

#include "model/family.h"
#include "nn/vision.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

// MBConvConfig or FusedMBConvConfig.
struct EfficientnetStage {
  bool fused;
  int64_t expand_ratio, kernel, stride, in, out, layers;
};

struct EfficientnetVariant {
  const char* name;
  double width_mult, depth_mult, dropout;
  std::vector<EfficientnetStage> stages;
  std::optional<int64_t> last_channel;  // else four times the last stage
};

const std::vector<EfficientnetStage>& base_stages() {
  static const std::vector<EfficientnetStage> kStages{
      {false, 1, 3, 1, 32, 16, 1},  {false, 6, 3, 2, 16, 24, 2},   {false, 6, 5, 2, 24, 40, 2},   {false, 6, 3, 2, 40, 80, 3},
      {false, 6, 5, 1, 80, 112, 3}, {false, 6, 5, 2, 112, 192, 4}, {false, 6, 3, 1, 192, 320, 1},
  };
  return kStages;
}

const std::vector<EfficientnetVariant>& variants() {
  static const std::vector<EfficientnetVariant> kEfficientnetVariants{
      {"efficientnet_b0", 1.0, 1.0, 0.2, base_stages(), {}},
      {"efficientnet_b1", 1.0, 1.1, 0.2, base_stages(), {}},
      {"efficientnet_b2", 1.1, 1.2, 0.3, base_stages(), {}},
      {"efficientnet_b3", 1.2, 1.4, 0.3, base_stages(), {}},
      {"efficientnet_b4", 1.4, 1.8, 0.4, base_stages(), {}},
      {"efficientnet_b5", 1.6, 2.2, 0.4, base_stages(), {}},
      {"efficientnet_b6", 1.8, 2.6, 0.5, base_stages(), {}},
      {"efficientnet_b7", 2.0, 3.1, 0.5, base_stages(), {}},
      {"efficientnet_v2_s",
       1.0,
       1.0,
       0.2,
       {{true, 1, 3, 1, 24, 24, 2},
        {true, 4, 3, 2, 24, 48, 4},
        {true, 4, 3, 2, 48, 64, 4},
        {false, 4, 3, 2, 64, 128, 6},
        {false, 6, 3, 1, 128, 160, 9},
        {false, 6, 3, 2, 160, 256, 15}},
       1280},
      {"efficientnet_v2_m",
       1.0,
       1.0,
       0.3,
       {{true, 1, 3, 1, 24, 24, 3},
        {true, 4, 3, 2, 24, 48, 5},
        {true, 4, 3, 2, 48, 80, 5},
        {false, 4, 3, 2, 80, 160, 7},
        {false, 6, 3, 1, 160, 176, 14},
        {false, 6, 3, 2, 176, 304, 18},
        {false, 6, 3, 1, 304, 512, 5}},
       1280},
      {"efficientnet_v2_l",
       1.0,
       1.0,
       0.4,
       {{true, 1, 3, 1, 32, 32, 4},
        {true, 4, 3, 2, 32, 64, 7},
        {true, 4, 3, 2, 64, 96, 7},
        {false, 4, 3, 2, 96, 192, 10},
        {false, 6, 3, 1, 192, 224, 19},
        {false, 6, 3, 2, 224, 384, 25},
        {false, 6, 3, 1, 384, 640, 7}},
       1280},
  };
  return kEfficientnetVariants;
}

// MBConv and FusedMBConv differ only in what their Sequential holds.
struct MBConv : Module {
  MBConv(Module& parent, std::string_view name, const EfficientnetStage& s, double stochastic_depth_prob)
      : Module(parent, name),
        use_res_connect(s.stride == 1 && s.in == s.out),
        stochastic_depth(*this, "stochastic_depth", stochastic_depth_prob) {
    const int64_t expanded = make_divisible(static_cast<double>(s.in * s.expand_ratio), 8);
    if (s.fused) {
      make_fused(s, expanded);
    } else {
      make_separable(s, expanded);
    }
  }

  void make_separable(const EfficientnetStage& s, int64_t expanded) {
    if (expanded != s.in) block.add<Conv2dNormActivation>(s.in, expanded, ConvNormOptions{.kernel = 1, .act = Act::silu});
    block.add<Conv2dNormActivation>(expanded, expanded,
                                    ConvNormOptions{.kernel = s.kernel, .stride = s.stride, .groups = expanded, .act = Act::silu});
    const int64_t squeeze = std::max<int64_t>(1, s.in / 4);
    block.add<SqueezeExcitation>(expanded, squeeze, SqueezeExcitationOptions{.activation = Act::silu, .inplace = true});
    block.add<Conv2dNormActivation>(expanded, s.out, ConvNormOptions{.kernel = 1, .act = Act::none});
  }

  void make_fused(const EfficientnetStage& s, int64_t expanded) {
    const bool expands = expanded != s.in;
    block.add<Conv2dNormActivation>(s.in, expands ? expanded : s.out,
                                    ConvNormOptions{.kernel = s.kernel, .stride = s.stride, .act = Act::silu});
    if (expands) block.add<Conv2dNormActivation>(expanded, s.out, ConvNormOptions{.kernel = 1, .act = Act::none});
  }

  Tensor operator()(const Tensor& input) const {
    Forward here(*this);
    Tensor result = block(input);  // (N, out, H / stride, W / stride)
    if (use_res_connect) {
      result = stochastic_depth(result);
      result = add_(result, input);
    }
    return result;
  }

  bool use_res_connect;
  Sequential block{*this, "block"};
  StochasticDepth stochastic_depth;
};

struct EfficientNet : ImageClassifier {
  EfficientNet(Build& build, const Config& c, const EfficientnetVariant& v) : ImageClassifier(build) {
    require_known_arguments(c, "efficientnet", {"dropout", "stochastic_depth_prob"});
    const double drop = probability(c, "stochastic_depth_prob", 0.2);
    std::vector<EfficientnetStage> stages = v.stages;
    int64_t blocks = 0, id = 0;
    for (EfficientnetStage& s : stages) {
      s.in = make_divisible(static_cast<double>(s.in) * v.width_mult, 8);
      s.out = make_divisible(static_cast<double>(s.out) * v.width_mult, 8);
      s.layers = static_cast<int64_t>(std::ceil(static_cast<double>(s.layers) * v.depth_mult));
      blocks += s.layers;
    }
    features.add<Conv2dNormActivation>(3, stages.front().in, ConvNormOptions{.stride = 2, .act = Act::silu});
    for (EfficientnetStage s : stages) {
      Sequential& stage = features.add<Sequential>();
      for (int64_t i = 0; i < s.layers; ++i, ++id) {
        stage.add<MBConv>(s, drop * static_cast<double>(id) / static_cast<double>(blocks));
        s.in = s.out;
        s.stride = 1;
      }
    }
    const int64_t last_in = stages.back().out, last = v.last_channel.value_or(4 * last_in);
    features.add<Conv2dNormActivation>(last_in, last, ConvNormOptions{.kernel = 1, .act = Act::silu});
    classifier.add<InplaceDropout>(probability(c, "dropout", v.dropout));
    classifier.add<Linear>(last, c.size({"num_classes"}, 1000));
  }

  Tensor operator()(const Tensor& pixels) override {
    Tensor x = features(pixels);  // (N, last, H / 32, W / 32)
    x = avgpool(x);               // (N, last, 1, 1)
    x = flatten(x, 1);            // (N, last)
    x = classifier(x);            // (N, classes)
    return x;
  }

  Sequential features{*this, "features"};
  AdaptiveAvgPool2d avgpool{*this, "avgpool", 1};
  Sequential classifier{*this, "classifier"};
};

std::unique_ptr<Model> make_efficientnet(Build& build, const Config& config, const std::string& name) {
  for (const EfficientnetVariant& v : variants())
    if (name == v.name) return std::make_unique<EfficientNet>(build, config, v);
  throw Error("[efficientnet] '" + name + "' is not one of its variants", "see the list of models");
}

}  // namespace

const Family& efficientnet_family() {
  static const Family kFamily{
      .name = "efficientnet",
      .library = "torchvision",
      .models = torchvision_models(make_efficientnet, {{"efficientnet_b0"},
                                                       {"efficientnet_b1", 240},
                                                       {"efficientnet_b2", 288},
                                                       {"efficientnet_b3", 300},
                                                       {"efficientnet_b4", 380},
                                                       {"efficientnet_b5", 456},
                                                       {"efficientnet_b6", 528},
                                                       {"efficientnet_b7", 600},
                                                       {"efficientnet_v2_s", 384},
                                                       {"efficientnet_v2_m", 480},
                                                       {"efficientnet_v2_l", 480}}),
  };
  return kFamily;
}

}  // namespace plimsoll
