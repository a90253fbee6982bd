// torchvision.models.resnet: ResNet, ResNeXt and Wide ResNet.
#include "nn/resnet.h"
#include <nlohmann/json.hpp>
#include "model/family.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

struct ResnetVariant {
  const char* name;
  bool bottleneck;
  int64_t layers[4];
  int64_t groups = 1, width_per_group = 64;
};

constexpr ResnetVariant kResnetVariants[] = {
    {"resnet18", false, {2, 2, 2, 2}},
    {"resnet34", false, {3, 4, 6, 3}},
    {"resnet50", true, {3, 4, 6, 3}},
    {"resnet101", true, {3, 4, 23, 3}},
    {"resnet152", true, {3, 8, 36, 3}},
    {"resnext50_32x4d", true, {3, 4, 6, 3}, 32, 4},
    {"resnext101_32x8d", true, {3, 4, 23, 3}, 32, 8},
    {"resnext101_64x4d", true, {3, 4, 23, 3}, 64, 4},
    {"wide_resnet50_2", true, {3, 4, 6, 3}, 1, 128},
    {"wide_resnet101_2", true, {3, 4, 23, 3}, 1, 128},
};

struct ResNetConfig {
  ResNetConfig(const Config& c, const ResnetVariant& v) : num_classes(c.size({"num_classes"}, 1000)) {
    options.bottleneck = v.bottleneck;
    std::copy(std::begin(v.layers), std::end(v.layers), options.layers);
    const int64_t groups = options.groups = c.size({"groups"}, v.groups);
    const int64_t width_per_group = options.width_per_group = c.size({"width_per_group"}, v.width_per_group);
    require_known_arguments(c, "resnet", {"groups", "width_per_group", "replace_stride_with_dilation"});
    // ResNeXt and Wide ResNet are their widths; torchvision refuses others under these names.
    const bool fixed_groups = v.groups != 1, fixed_width = v.width_per_group != 64;
    if ((fixed_groups && groups != v.groups) || (fixed_width && width_per_group != v.width_per_group) ||
        (!v.bottleneck && (groups != 1 || width_per_group != 64)))
      throw Error(std::string("[resnet] ") + v.name + " has groups " + std::to_string(v.groups) + " and width_per_group " +
                      std::to_string(v.width_per_group),
                  "start from resnet50 for other widths");
    read_dilation(c);
  }

  void read_dilation(const Config& c) {
    const nlohmann::json* list = c.find({"replace_stride_with_dilation"});
    if (!list) return;
    if (!list->is_array() || list->size() != 3)
      throw Error("[resnet] replace_stride_with_dilation is not a list of three", "give true or false for layers 2, 3 and 4");
    for (size_t i = 0; i < 3; ++i) {
      options.dilate[i + 1] = list->at(i).is_boolean() && list->at(i).get<bool>();
      if (options.dilate[i + 1] && !options.bottleneck)
        throw Error("[resnet] replace_stride_with_dilation needs Bottleneck blocks", "use resnet50 or larger");
    }
  }

  int64_t num_classes;
  ResNetOptions options;
};

struct ResNet : ImageClassifier {
  ResNet(Build& build, const Config& c, const ResnetVariant& v) : ImageClassifier(build), config(c, v) {}

  Tensor operator()(const Tensor& pixels) override {
    Tensor x = trunk.stem(pixels);  // (N, 64, H / 4, W / 4)
    x = run_part(trunk.layer1, x);  // (N, 64 e, H / 4, W / 4), e the block's expansion
    x = run_part(trunk.layer2, x);  // (N, 128 e, H / 8, W / 8)
    x = run_part(trunk.layer3, x);  // (N, 256 e, H / 16, W / 16)
    x = run_part(trunk.layer4, x);  // (N, 512 e, H / 32, W / 32)
    x = avgpool(x);                 // (N, 512 e, 1, 1)
    x = flatten(x, 1);              // (N, 512 e)
    x = fc(x);                      // (N, classes)
    return x;
  }

  ResNetConfig config;
  ResNetTrunk trunk{*this, config.options};
  AdaptiveAvgPool2d avgpool{*this, "avgpool", 1};
  Linear fc{*this, "fc", 512 * config.options.expansion(), config.num_classes};
};

std::unique_ptr<Model> make_resnet(Build& build, const Config& config, const std::string& name) {
  for (const ResnetVariant& v : kResnetVariants)
    if (name == v.name) return std::make_unique<ResNet>(build, config, v);
  throw Error("[resnet] '" + name + "' is not one of its variants", "see the list of models");
}

}  // namespace

const Family& resnet_family() {
  static const Family kFamily{
      .name = "resnet",
      .library = "torchvision",
      .models = torchvision_models(make_resnet, {{"resnet18"},
                                                 {"resnet34"},
                                                 {"resnet50"},
                                                 {"resnet101"},
                                                 {"resnet152"},
                                                 {"resnext50_32x4d"},
                                                 {"resnext101_32x8d"},
                                                 {"resnext101_64x4d"},
                                                 {"wide_resnet50_2"},
                                                 {"wide_resnet101_2"}}),
  };
  return kFamily;
}

}  // namespace plimsoll
