// torchvision.models.mobilenetv2: MobileNetV2.
#include <cmath>
#include <nlohmann/json.hpp>

#include "model/family.h"
#include "nn/vision.h"
#include "ops/pointwise.h"
#include "ops/pool.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

// One row of inverted_residual_setting.
struct MobilenetV2Stage {
  int64_t expand_ratio, channels, repeats, stride;
};

std::vector<MobilenetV2Stage> mobilenet_v2_stages(const Config& c) {
  const nlohmann::json* rows = c.find({"inverted_residual_setting"});
  if (!rows) return {{1, 16, 1, 1}, {6, 24, 2, 2}, {6, 32, 3, 2}, {6, 64, 4, 2}, {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};
  std::vector<MobilenetV2Stage> stages;
  for (const nlohmann::json& row : rows->is_array() ? *rows : nlohmann::json::array()) {
    const bool whole = row.is_array() && row.size() == 4 && std::all_of(row.begin(), row.end(), [](const nlohmann::json& n) {
                         return n.is_number_integer() && n.get<int64_t>() > 0;
                       });
    if (!whole || row[3].get<int64_t>() > 2)
      throw Error("[mobilenet_v2] inverted_residual_setting has the row " + row.dump(), "give [expand, channels, repeats, stride 1 or 2]");
    stages.push_back({row[0], row[1], row[2], row[3]});
  }
  if (stages.empty()) throw Error("[mobilenet_v2] inverted_residual_setting is empty", "give rows [expand, channels, repeats, stride]");
  return stages;
}

struct MobilenetV2Residual : Module {
  MobilenetV2Residual(Module& parent, std::string_view name, int64_t in, int64_t out, int64_t stride, int64_t expand_ratio)
      : Module(parent, name), use_res_connect(stride == 1 && in == out) {
    const int64_t hidden = checked_mul(in, expand_ratio);
    if (expand_ratio != 1) conv.add<Conv2dNormActivation>(in, hidden, ConvNormOptions{.kernel = 1, .act = Act::relu6});
    conv.add<Conv2dNormActivation>(hidden, hidden, ConvNormOptions{.stride = stride, .groups = hidden, .act = Act::relu6});
    conv.add<Conv2d>(hidden, out, Conv2dOptions{.kernel = 1, .bias = false});
    conv.add<BatchNorm2d>(out);
  }

  Tensor operator()(const Tensor& x) const {
    Forward here(*this);
    if (use_res_connect) return add(x, conv(x));  // (N, C, H, W)
    return conv(x);                               // (N, out, H / stride, W / stride)
  }

  bool use_res_connect;
  Sequential conv{*this, "conv"};
};

struct MobileNetV2 : ImageClassifier {
  MobileNetV2(Build& build, const Config& c) : ImageClassifier(build) {
    require_known_arguments(c, "mobilenet_v2", {"width_mult", "inverted_residual_setting", "round_nearest", "dropout"});
    const double width_mult = c.number({"width_mult"}, 1.0);
    const int64_t round_nearest = c.size({"round_nearest"}, 8);
    int64_t channels = make_divisible(32 * width_mult, round_nearest);
    const int64_t last_channel = make_divisible(1280 * std::max(1.0, width_mult), round_nearest);
    features.add<Conv2dNormActivation>(3, channels, ConvNormOptions{.stride = 2, .act = Act::relu6});
    for (const MobilenetV2Stage& s : mobilenet_v2_stages(c)) {
      const int64_t out = make_divisible(static_cast<double>(s.channels) * width_mult, round_nearest);
      for (int64_t i = 0; i < s.repeats; ++i) {
        features.add<MobilenetV2Residual>(channels, out, i == 0 ? s.stride : 1, s.expand_ratio);
        channels = out;
      }
    }
    features.add<Conv2dNormActivation>(channels, last_channel, ConvNormOptions{.kernel = 1, .act = Act::relu6});
    classifier.add<Dropout>(probability(c, "dropout", 0.2));
    classifier.add<Linear>(last_channel, c.size({"num_classes"}, 1000));
  }

  Tensor operator()(const Tensor& pixels) override {
    Tensor x = features(pixels);       // (N, last, H / 32, W / 32)
    x = adaptive_avg_pool2d(x, 1, 1);  // (N, last, 1, 1)
    x = flatten(x, 1);                 // (N, last)
    x = classifier(x);                 // (N, classes)
    return x;
  }

  Sequential features{*this, "features"};
  Sequential classifier{*this, "classifier"};
};

std::unique_ptr<Model> make_mobilenet_v2(Build& build, const Config& config, const std::string&) {
  return std::make_unique<MobileNetV2>(build, config);
}

}  // namespace

const Family& mobilenet_v2_family() {
  static const Family kFamily{
      .name = "mobilenet_v2",
      .library = "torchvision",
      .models = torchvision_models(make_mobilenet_v2, {{"mobilenet_v2"}}),
  };
  return kFamily;
}

}  // namespace plimsoll
