#include "nn/resnet.h"

#include "ops/pointwise.h"

namespace plimsoll {

namespace {

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
  BasicBlock(Module& parent, std::string_view name, const ResNetOptions&, const BlockShape& s)
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
  Bottleneck(Module& parent, std::string_view name, const ResNetOptions& c, const BlockShape& s)
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
void add_layers(ResNetTrunk& trunk, const ResNetOptions& options) {
  int64_t inplanes = 64, dilation = 1, planes = 64;
  Sequential* layers[] = {&trunk.layer1, &trunk.layer2, &trunk.layer3, &trunk.layer4};
  for (int i = 0; i < 4; ++i, planes *= 2) {
    int64_t stride = i == 0 ? 1 : 2;
    const int64_t first_dilation = dilation;
    if (options.dilate[i]) {
      dilation *= stride;
      stride = 1;
    }
    const int64_t out = planes * Block::kExpansion;
    for (int64_t k = 0; k < options.layers[i]; ++k) {
      const bool first = k == 0;
      layers[i]->template add<Block>(options, BlockShape{inplanes, planes, first ? stride : 1, first ? first_dilation : dilation,
                                                         first && (stride != 1 || inplanes != out)});
      inplanes = out;
    }
  }
}

}  // namespace

ResNetTrunk::ResNetTrunk(Module& parent, const ResNetOptions& options)
    : conv1(parent, "conv1", 3, 64, {.kernel = 7, .stride = 2, .padding = 3, .bias = false}),
      bn1(parent, "bn1", 64),
      relu(parent, "relu", Act::relu, true),
      maxpool(parent, "maxpool", {.kernel = 3, .stride = 2, .padding = 1}),
      layer1(parent, "layer1"),
      layer2(parent, "layer2"),
      layer3(parent, "layer3"),
      layer4(parent, "layer4") {
  if (options.bottleneck)
    add_layers<Bottleneck>(*this, options);
  else
    add_layers<BasicBlock>(*this, options);
}

Tensor ResNetTrunk::stem(const Tensor& pixels) const {
  Tensor x = conv1(pixels);  // (N, 64, H / 2, W / 2)
  x = bn1(x);
  x = relu(x);
  return maxpool(x);
}

}  // namespace plimsoll
