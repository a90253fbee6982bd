// torchvision.models.segmentation: FCN and DeepLabV3 on a dilated ResNet, with the loss of torchvision's training script.
#include <fmt/format.h>

#include "model/family.h"
#include "nn/resnet.h"
#include "ops/loss.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"
#include "ops/upsample.h"

namespace plimsoll {

namespace {

struct SegmentationVariant {
  const char* name;
  bool deeplab;
  int64_t blocks;  // of the ResNet's third layer
};
constexpr SegmentationVariant kSegmentationVariants[] = {
    {"deeplabv3_resnet50", true, 6}, {"deeplabv3_resnet101", true, 23}, {"fcn_resnet50", false, 6}, {"fcn_resnet101", false, 23}};

ResNetOptions dilated(int64_t blocks) {
  ResNetOptions o;
  o.layers[2] = blocks;
  o.dilate[2] = o.dilate[3] = true;
  return o;
}

// torchvision.models._utils.IntermediateLayerGetter over a ResNet.
struct Backbone : Module {
  Backbone(Module& parent, std::string_view name, int64_t blocks) : Module(parent, name), trunk(*this, dilated(blocks)) {}
  ResNetTrunk trunk;
};

struct FCNHead : Sequential {
  FCNHead(Module& parent, std::string_view name, int64_t in, int64_t channels) : Sequential(parent, name) {
    add_conv(*this, in, in / 4, {.kernel = 3, .padding = 1}, false);
    add<Activation>(Act::relu, false);
    add<Dropout>(0.1);
    add<Conv2d>(in / 4, channels, Conv2dOptions{});
  }
};

constexpr int64_t kPyramid = 256;  // channels of every part of it

struct ASPPConv : Sequential {
  ASPPConv(Module& parent, std::string_view name, int64_t in, const Conv2dOptions& options) : Sequential(parent, name) {
    add_conv(*this, in, kPyramid, options, false);
    add<Activation>(Act::relu, false);
  }
};

struct ASPPPooling : Sequential {
  ASPPPooling(Module& parent, std::string_view name, int64_t in) : Sequential(parent, name) {
    add<AdaptiveAvgPool2d>(1);
    add_conv(*this, in, kPyramid, {}, false);
    add<Activation>(Act::relu, false);
  }
  Tensor operator()(const Tensor& x) const {
    const Tensor pooled = Sequential::operator()(x);  // (N, 256, 1, 1)
    return upsample_bilinear2d(pooled, x.size(2), x.size(3));
  }
};

// Atrous spatial pyramid pooling.
struct ASPP : Module {
  ASPP(Module& parent, std::string_view name, int64_t in) : Module(parent, name), pooling((add_convs(in), convs), "4", in) {
    add_conv(project, 5 * kPyramid, kPyramid, {}, false);
    project.add<Activation>(Act::relu, false);
    project.add<Dropout>(0.5);
  }

  void add_convs(int64_t in) {
    convs.add(in, Conv2dOptions{});
    for (const int64_t rate : {12, 24, 36}) convs.add(in, Conv2dOptions{.kernel = 3, .padding = rate, .dilation = rate});
  }

  Tensor operator()(const Tensor& x) {
    Forward here(*this);
    Tensors parts;
    for (const ASPPConv& conv : convs) parts.push_back(conv(x));  // (N, 256, H, W)
    parts.push_back(pooling(x));
    const Tensor joined = cat(parts, 1);  // (N, 1280, H, W)
    return project(joined);
  }

  ModuleList<ASPPConv> convs{*this, "convs"};
  ASPPPooling pooling;
  Sequential project{*this, "project"};
};

struct DeepLabHead : Sequential {
  DeepLabHead(Module& parent, std::string_view name, int64_t in, int64_t channels) : Sequential(parent, name) {
    add<ASPP>(in);
    add_conv(*this, kPyramid, kPyramid, {.kernel = 3, .padding = 1}, false);
    add<Activation>(Act::relu, false);
    add<Conv2d>(kPyramid, channels, Conv2dOptions{});
  }
};

struct SegmentationModel : Model {
  SegmentationModel(Build& build, const Config& c, const SegmentationVariant& v) : Model(build), backbone(*this, "backbone", v.blocks) {
    require_known_arguments(c, v.name, {"aux_loss"});
    const int64_t classes = c.size({"num_classes"}, 21);
    if (v.deeplab)
      classifier = std::make_unique<DeepLabHead>(*this, "classifier", 2048, classes);
    else
      classifier = std::make_unique<FCNHead>(*this, "classifier", 2048, classes);
    if (c.flag({"aux_loss"}, false)) aux_classifier = std::make_unique<FCNHead>(*this, "aux_classifier", 1024, classes);
  }

  Tensors make_inputs(int64_t samples, int64_t side, DType dtype) override {
    return {empty(tape(), {samples, 3, side, side}, dtype), empty(tape(), {samples, side, side}, DType::int64)};
  }

  std::string sample(int64_t side) const override { return fmt::format("{} x {} pixels", side, side); }

  Output forward(const Batch& batch) override {
    const Tensor &pixels = batch.own[0], &labels = batch.own[1];
    const Tensors result = predict(pixels);  // each (N, classes, H, W)
    const Tensor loss = cross_entropy(result[0], labels);
    if (result.size() == 1) return {loss, {}};
    const Tensor aux = cross_entropy(result[1], labels);
    return {add(loss, mul_scalar(aux)), {}};
  }

 private:
  struct Features {
    Tensor aux, out;
  };

  Features features(const Tensor& pixels) const {
    const ResNetTrunk& t = backbone.trunk;
    Features f;
    Tensor x = t.stem(pixels);  // (N, 64, H / 4, W / 4)
    x = run_part(t.layer1, x);
    x = run_part(t.layer2, x);  // (N, 512, H / 8, W / 8)
    x = run_part(t.layer3, x);
    if (aux_classifier) f.aux = x;  // (N, 1024, H / 8, W / 8)
    f.out = run_part(t.layer4, x);  // (N, 2048, H / 8, W / 8)
    return f;
  }

  Tensors predict(const Tensor& pixels) const {
    const Features f = features(pixels);
    auto upscaled = [&](const Sequential& head, const Tensor& x) {
      const Tensor y = head(x);
      return upsample_bilinear2d(y, pixels.size(2), pixels.size(3));
    };
    Tensors result{upscaled(*classifier, f.out)};
    if (aux_classifier) result.push_back(upscaled(*aux_classifier, f.aux));
    return result;
  }

  Backbone backbone;
  std::unique_ptr<Sequential> classifier, aux_classifier;
};

std::unique_ptr<Model> make_segmentation(Build& build, const Config& config, const std::string& name) {
  for (const SegmentationVariant& v : kSegmentationVariants)
    if (name == v.name) return std::make_unique<SegmentationModel>(build, config, v);
  throw Error("[segmentation] '" + name + "' is not one of its variants", "see the list of models");
}

// Pixels have labels of their own, which the model makes.
std::vector<ModelEntry> segmentation_models(const std::vector<TorchvisionVariant>& variants) {
  std::vector<ModelEntry> models = torchvision_models(make_segmentation, variants);
  for (ModelEntry& m : models) {
    m.inputs = InputKind::own;
    m.default_seq = 520;
  }
  return models;
}

}  // namespace

const Family& deeplabv3_family() {
  static const Family kFamily{
      .name = "deeplabv3",
      .library = "torchvision",
      .models = segmentation_models({{"deeplabv3_resnet50"}, {"deeplabv3_resnet101"}}),
  };
  return kFamily;
}

const Family& fcn_family() {
  static const Family kFamily{
      .name = "fcn",
      .library = "torchvision",
      .models = segmentation_models({{"fcn_resnet50"}, {"fcn_resnet101"}}),
  };
  return kFamily;
}

}  // namespace plimsoll
