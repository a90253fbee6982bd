// torchvision.models.regnet: RegNet X and Y.
#include <cmath>

#include "model/family.h"
#include "nn/vision.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

// The arguments of BlockParams.from_init_params.
struct RegnetVariant {
  const char* name;
  int64_t depth, w_0;
  double w_a, w_m;
  int64_t group_width;
  double se_ratio = 0;  // 0: no squeeze-and-excitation
};

constexpr RegnetVariant kRegnetVariants[] = {
    {"regnet_y_400mf", 16, 48, 27.89, 2.09, 8, 0.25},    {"regnet_y_800mf", 14, 56, 38.84, 2.4, 16, 0.25},
    {"regnet_y_1_6gf", 27, 48, 20.71, 2.65, 24, 0.25},   {"regnet_y_3_2gf", 21, 80, 42.63, 2.66, 24, 0.25},
    {"regnet_y_8gf", 17, 192, 76.82, 2.19, 56, 0.25},    {"regnet_y_16gf", 18, 200, 106.23, 2.48, 112, 0.25},
    {"regnet_y_32gf", 20, 232, 115.89, 2.53, 232, 0.25}, {"regnet_y_128gf", 27, 456, 160.83, 2.52, 264, 0.25},
    {"regnet_x_400mf", 22, 24, 24.48, 2.54, 16},         {"regnet_x_800mf", 16, 56, 35.73, 2.28, 16},
    {"regnet_x_1_6gf", 18, 80, 34.01, 2.25, 24},         {"regnet_x_3_2gf", 25, 88, 26.31, 2.25, 48},
    {"regnet_x_8gf", 23, 80, 49.56, 2.88, 120},          {"regnet_x_16gf", 22, 216, 55.59, 2.1, 128},
    {"regnet_x_32gf", 23, 320, 69.86, 2.0, 168},
};

struct StageShape {
  int64_t width, depth, group_width;
};

// BlockParams.from_init_params: widths grow linearly, are rounded to powers of w_m and to multiples of 8, and equal
// neighbours make a stage. Python computes in float32 tensors, so this does too.
std::vector<StageShape> regnet_stages(const RegnetVariant& v) {
  const float w_0 = static_cast<float>(v.w_0);
  std::vector<StageShape> stages;
  for (int64_t i = 0; i < v.depth; ++i) {
    const float width = static_cast<float>(i) * static_cast<float>(v.w_a) + w_0;
    const float capacity = std::nearbyint(std::log(width / w_0) / static_cast<float>(std::log(v.w_m)));
    const float power = w_0 * std::pow(static_cast<float>(v.w_m), capacity);
    const int64_t rounded = static_cast<int64_t>(std::nearbyint(power / 8.0f) * 8.0f);
    if (stages.empty() || stages.back().width != rounded) stages.push_back({rounded, 0, v.group_width});
    ++stages.back().depth;
  }
  for (StageShape& s : stages) {  // _adjust_widths_groups_compatibilty, with bottleneck_multiplier 1
    s.group_width = std::min(s.group_width, s.width);
    s.width = make_divisible(static_cast<double>(s.width), s.group_width);
  }
  return stages;
}

struct BottleneckTransform : Sequential {
  BottleneckTransform(Module& parent, std::string_view name, int64_t in, int64_t out, int64_t stride, int64_t group_width, double se_ratio)
      : Sequential(parent, name) {
    add_named<Conv2dNormActivation>("a", in, out, ConvNormOptions{.kernel = 1});
    add_named<Conv2dNormActivation>("b", out, out, ConvNormOptions{.kernel = 3, .stride = stride, .groups = out / group_width});
    if (se_ratio > 0) {
      const int64_t squeeze = static_cast<int64_t>(std::nearbyint(se_ratio * static_cast<double>(in)));
      add_named<SqueezeExcitation>("se", out, squeeze, SqueezeExcitationOptions{});
    }
    add_named<Conv2dNormActivation>("c", out, out, ConvNormOptions{.kernel = 1, .act = Act::none});
  }
};

struct ResBottleneckBlock : Module {
  ResBottleneckBlock(Module& parent, std::string_view name, int64_t in, int64_t out, int64_t stride, int64_t group_width, double se_ratio)
      : Module(parent, name),
        proj(in != out || stride != 1 ? std::make_unique<Conv2dNormActivation>(
                                            *this, "proj", in, out, ConvNormOptions{.kernel = 1, .stride = stride, .act = Act::none})
                                      : nullptr),
        f(*this, "f", in, out, stride, group_width, se_ratio) {}

  Tensor operator()(const Tensor& input) const {
    Forward here(*this);
    Tensor x = input;
    {
      const Tensor around = proj ? (*proj)(x) : x;  // (N, out, H / stride, W / stride)
      const Tensor through = f(x);
      x = add(around, through);
    }
    return activation(x);
  }

  std::unique_ptr<Conv2dNormActivation> proj;
  BottleneckTransform f;
  Activation activation{*this, "activation", Act::relu, true};
};

struct RegNet : ImageClassifier {
  RegNet(Build& build, const Config& c, const RegnetVariant& v)
      : ImageClassifier(build), stem_width(c.size({"stem_width"}, 32)), fc(*this, "fc", make_trunk(v), c.size({"num_classes"}, 1000)) {
    require_known_arguments(c, "regnet", {"stem_width"});
  }

  int64_t make_trunk(const RegnetVariant& v) {
    int64_t width = stem_width;
    int index = 0;
    for (const StageShape& s : regnet_stages(v)) {
      const std::string name = "block" + std::to_string(++index);
      Sequential& stage = trunk_output.add_named<Sequential>(name);
      for (int64_t i = 0; i < s.depth; ++i) {
        stage.add_named<ResBottleneckBlock>(name + "-" + std::to_string(i), width, s.width, i == 0 ? 2 : 1, s.group_width, v.se_ratio);
        width = s.width;
      }
    }
    return width;
  }

  Tensor operator()(const Tensor& pixels) override {
    Tensor x = stem(pixels);  // (N, stem, H / 2, W / 2)
    x = trunk_output(x);      // (N, C, H / 32, W / 32)
    x = avgpool(x);           // (N, C, 1, 1)
    x = flatten(x, 1);        // (N, C)
    x = fc(x);                // (N, classes)
    return x;
  }

  int64_t stem_width;
  Conv2dNormActivation stem{*this, "stem", 3, stem_width, {.stride = 2}};
  Sequential trunk_output{*this, "trunk_output"};
  AdaptiveAvgPool2d avgpool{*this, "avgpool", 1};
  Linear fc;
};

std::unique_ptr<Model> make_regnet(Build& build, const Config& config, const std::string& name) {
  for (const RegnetVariant& v : kRegnetVariants)
    if (name == v.name) return std::make_unique<RegNet>(build, config, v);
  throw Error("[regnet] '" + name + "' is not one of its variants", "see the list of models");
}

}  // namespace

const Family& regnet_family() {
  static const Family kFamily{
      .name = "regnet",
      .library = "torchvision",
      .models = torchvision_models(make_regnet, {{"regnet_y_400mf"},
                                                 {"regnet_y_800mf"},
                                                 {"regnet_y_1_6gf"},
                                                 {"regnet_y_3_2gf"},
                                                 {"regnet_y_8gf"},
                                                 {"regnet_y_16gf"},
                                                 {"regnet_y_32gf"},
                                                 {"regnet_y_128gf"},
                                                 {"regnet_x_400mf"},
                                                 {"regnet_x_800mf"},
                                                 {"regnet_x_1_6gf"},
                                                 {"regnet_x_3_2gf"},
                                                 {"regnet_x_8gf"},
                                                 {"regnet_x_16gf"},
                                                 {"regnet_x_32gf"}}),
  };
  return kFamily;
}

}  // namespace plimsoll
