// torchvision.models.resnet: ResNet, ResNeXt and Wide ResNet.
#include <nlohmann/json.hpp>
#include "model/families.h"
#include "nn/vision.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

struct Variant {
  const char* name;
  bool bottleneck;
  int64_t layers[4];
  int64_t groups = 1, width_per_group = 64;
};

constexpr Variant kVariants[] = {
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
  ResNetConfig(const Config& c, const Variant& v)
      : variant(v),
        num_classes(c.size({"num_classes"}, 1000)),
        groups(c.size({"groups"}, v.groups)),
        width_per_group(c.size({"width_per_group"}, v.width_per_group)) {
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
      dilate[i + 1] = list->at(i).is_boolean() && list->at(i).get<bool>();
      if (dilate[i + 1] && !variant.bottleneck)
        throw Error("[resnet] replace_stride_with_dilation needs Bottleneck blocks", "use resnet50 or larger");
    }
  }

  const Variant& variant;
  int64_t num_classes, groups, width_per_group;
  bool dilate[4] = {};
};

struct BlockShape {
  int64_t inplanes, planes, stride, dilation;
  bool downsample;
};

Conv2dOptions conv3x3(int64_t stride, int64_t groups = 1, int64_t dilation = 1) {
  return {.kernel = 3, .stride = stride, .padding = dilation, .dilation = dilation, .groups = groups, .bias = false};
}

Conv2dOptions conv1x1(int64_t stride = 1) { return {.kernel = 1, .stride = stride, .bias = false}; }

// nn.Sequential(conv1x1, norm) on the way around a block whose shape changes
std::unique_ptr<Sequential> make_downsample(Module& parent, const BlockShape& s, int64_t out) {
  if (!s.downsample) return nullptr;
  auto seq = std::make_unique<Sequential>(parent, "downsample");
  seq->add<Conv2d>(s.inplanes, out, conv1x1(s.stride));
  seq->add<BatchNorm2d>(out);
  return seq;
}

struct BasicBlock : Module {
  static constexpr int64_t kExpansion = 1;
  BasicBlock(Module& parent, std::string_view name, const ResNetConfig&, const BlockShape& s)
      : Module(parent, name),
        conv1(*this, "conv1", s.inplanes, s.planes, conv3x3(s.stride)),
        bn1(*this, "bn1", s.planes),
        relu(*this, "relu", Act::relu, true),
        conv2(*this, "conv2", s.planes, s.planes, conv3x3(1)),
        bn2(*this, "bn2", s.planes),
        downsample(make_downsample(*this, s, s.planes)) {}

  Tensor operator()(const Tensor& x) const {
    Forward here(*this);
    Tensor identity = x;
    Tensor out = conv1(x);  // (N, planes, H / stride, W / stride)
    out = bn1(out);
    out = relu(out);
    out = conv2(out);  // (N, planes, H / stride, W / stride)
    out = bn2(out);
    if (downsample) identity = (*downsample)(x);
    out = add_(out, identity);
    out = relu(out);
    return out;
  }

  Conv2d conv1;
  BatchNorm2d bn1;
  Activation relu;
  Conv2d conv2;
  BatchNorm2d bn2;
  std::unique_ptr<Sequential> downsample;
};

struct Bottleneck : Module {
  static constexpr int64_t kExpansion = 4;
  Bottleneck(Module& parent, std::string_view name, const ResNetConfig& c, const BlockShape& s)
      : Module(parent, name),
        width(checked_mul(checked_mul(s.planes, c.width_per_group) / 64, c.groups)),
        conv1(*this, "conv1", s.inplanes, width, conv1x1()),
        bn1(*this, "bn1", width),
        conv2(*this, "conv2", width, width, conv3x3(s.stride, c.groups, s.dilation)),
        bn2(*this, "bn2", width),
        conv3(*this, "conv3", width, s.planes * kExpansion, conv1x1()),
        bn3(*this, "bn3", s.planes * kExpansion),
        relu(*this, "relu", Act::relu, true),
        downsample(make_downsample(*this, s, s.planes * kExpansion)) {}

  Tensor operator()(const Tensor& x) const {
    Forward here(*this);
    Tensor identity = x;
    Tensor out = conv1(x);  // (N, width, H, W)
    out = bn1(out);
    out = relu(out);
    out = conv2(out);  // (N, width, H / stride, W / stride)
    out = bn2(out);
    out = relu(out);
    out = conv3(out);  // (N, 4 planes, H / stride, W / stride)
    out = bn3(out);
    if (downsample) identity = (*downsample)(x);
    out = add_(out, identity);
    out = relu(out);
    return out;
  }

  int64_t width;
  Conv2d conv1;
  BatchNorm2d bn1;
  Conv2d conv2;
  BatchNorm2d bn2;
  Conv2d conv3;
  BatchNorm2d bn3;
  Activation relu;
  std::unique_ptr<Sequential> downsample;
};

template <class Block>
struct ResNet : ImageClassifier {
  ResNet(Build& build, const Config& c, const Variant& v)
      : ImageClassifier(build),
        config(c, v),
        conv1(*this, "conv1", 3, 64, {.kernel = 7, .stride = 2, .padding = 3, .bias = false}),
        bn1(*this, "bn1", 64),
        relu(*this, "relu", Act::relu, true),
        maxpool(*this, "maxpool", {.kernel = 3, .stride = 2, .padding = 1}),
        layer1(*this, "layer1"),
        layer2(*this, "layer2"),
        layer3(*this, "layer3"),
        layer4(*this, "layer4"),
        avgpool(*this, "avgpool", 1),
        fc(make_layers(), "fc", 512 * Block::kExpansion, config.num_classes) {}

  Module& make_layers() {
    int64_t inplanes = 64, dilation = 1, planes = 64;
    Sequential* layers[] = {&layer1, &layer2, &layer3, &layer4};
    for (int i = 0; i < 4; ++i, planes *= 2) {
      int64_t stride = i == 0 ? 1 : 2;
      const int64_t first_dilation = dilation;
      if (config.dilate[i]) {
        dilation *= stride;
        stride = 1;
      }
      const int64_t out = planes * Block::kExpansion;
      for (int64_t k = 0; k < config.variant.layers[i]; ++k) {
        const bool first = k == 0;
        layers[i]->template add<Block>(config, BlockShape{inplanes, planes, first ? stride : 1, first ? first_dilation : dilation,
                                                          first && (stride != 1 || inplanes != out)});
        inplanes = out;
      }
    }
    return *this;
  }

  Tensor operator()(const Tensor& pixels) override {
    Tensor x = conv1(pixels);  // (N, 64, H / 2, W / 2)
    x = bn1(x);
    x = relu(x);
    x = maxpool(x);           // (N, 64, H / 4, W / 4)
    x = run_part(layer1, x);  // (N, 64 e, H / 4, W / 4), e the block's expansion
    x = run_part(layer2, x);  // (N, 128 e, H / 8, W / 8)
    x = run_part(layer3, x);  // (N, 256 e, H / 16, W / 16)
    x = run_part(layer4, x);  // (N, 512 e, H / 32, W / 32)
    x = avgpool(x);           // (N, 512 e, 1, 1)
    x = flatten(x, 1);        // (N, 512 e)
    x = fc(x);                // (N, classes)
    return x;
  }

  ResNetConfig config;
  Conv2d conv1;
  BatchNorm2d bn1;
  Activation relu;
  MaxPool2d maxpool;
  Sequential layer1, layer2, layer3, layer4;
  AdaptiveAvgPool2d avgpool;
  Linear fc;
};

}  // namespace

std::unique_ptr<Model> make_resnet(Build& build, const Config& config, const std::string& name) {
  for (const Variant& v : kVariants) {
    if (name != v.name) continue;
    if (v.bottleneck) return std::make_unique<ResNet<Bottleneck>>(build, config, v);
    return std::make_unique<ResNet<BasicBlock>>(build, config, v);
  }
  throw Error("[resnet] '" + name + "' is not one of its variants", "see the list of models");
}

}  // namespace plimsoll
