#include "nn/resnet.h"

#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

struct BlockShape {
  int64_t inplanes, planes, stride, dilation;
  bool downsample;
  bool shifts = false;
};

// mmaction2 0.x, backbones/resnet_tsm.py, TemporalShift.shift: an eighth of the channels comes from the next frame, an eighth from the
// last, and the joined result is what the convolution keeps. x: (N segments, C, H, W)
Tensor temporal_shift(const Tensor& input, int64_t segments) {
  if (input.size(0) % segments != 0)
    throw Error("[resnet] " + std::to_string(input.size(0)) + " frames are no whole number of videos of " + std::to_string(segments),
                "give a batch of whole videos");
  const Tensor x = view(input, {-1, segments, input.size(1), input.size(2) * input.size(3)});
  const int64_t fold = x.size(2) / 8;
  Tensor left = slice(x, 2, 0, fold), mid = slice(x, 2, fold, 2 * fold);
  const Tensor right = slice(x, 2, 2 * fold, x.size(2));
  Tensor zeros = sub(left, left);
  Tensor blank = slice(zeros, 1, 0, 1);
  left = cat({slice(left, 1, 1, segments), blank}, 1);
  zeros = sub(mid, mid);
  blank = slice(zeros, 1, 0, 1);
  mid = cat({blank, slice(mid, 1, 0, segments - 1)}, 1);
  return view(cat({left, mid, right}, 2), input.sizes());
}

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
        shift_segments(s.shifts ? c.shift_segments : 0),
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
    Tensor out = conv1(shift_segments ? temporal_shift(x, shift_segments) : x);  // (N, width, H, W)
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

  int64_t shift_segments, width;
  Conv2d conv1;
  BatchNorm2d bn1;
  Conv2d conv2;
  BatchNorm2d bn2;
  Conv2d conv3;
  BatchNorm2d bn3;
  Activation relu;
  std::unique_ptr<Sequential> downsample;
};

// mmcls ResNet with deep_stem: convolution, norm and ReLU, three times
std::unique_ptr<Sequential> make_deep_stem(Module& parent) {
  auto stem = std::make_unique<Sequential>(parent, "stem");
  add_conv(*stem, 3, 32, {.kernel = 3, .stride = 2, .padding = 1}, true);
  add_conv(*stem, 32, 32, {.kernel = 3, .padding = 1}, true);
  add_conv(*stem, 32, 64, {.kernel = 3, .padding = 1}, true);
  return stem;
}

template <class Block>
void add_layers(ResNetTrunk& trunk, const ResNetOptions& options) {
  int64_t inplanes = 64, dilation = 1, planes = 64;
  const int64_t every = options.layers[2] >= 23 ? 2 : 1;  // mmaction2's n_round: deep networks shift in every second block
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
                                                         first && (stride != 1 || inplanes != out), k % every == 0});
      inplanes = out;
    }
  }
}

}  // namespace

ResNetTrunk::ResNetTrunk(Module& parent, const ResNetOptions& options)
    : deep_stem(options.deep_stem ? make_deep_stem(parent) : nullptr),
      conv1(options.deep_stem
                ? nullptr
                : std::make_unique<Conv2d>(parent, "conv1", 3, 64, Conv2dOptions{.kernel = 7, .stride = 2, .padding = 3, .bias = false})),
      bn1(options.deep_stem ? nullptr : std::make_unique<BatchNorm2d>(parent, "bn1", 64)),
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
  if (deep_stem) return maxpool((*deep_stem)(pixels));
  Tensor x = (*conv1)(pixels);  // (N, 64, H / 2, W / 2)
  x = (*bn1)(x);
  x = relu(x);
  return maxpool(x);
}

}  // namespace plimsoll
