// mmsegmentation: EncoderDecoder, a dilated ResNetV1c (output stride 8) under FCN, PSPNet, DeepLabV3 or DeepLabV3+, with an auxiliary FCN
// head and losses at the size of the labels. SyncBatchNorm keeps what BatchNorm keeps.
#include <fmt/format.h>

#include "model/family.h"
#include "nn/resnet.h"
#include "ops/loss_by_element.h"
#include "ops/pointwise.h"
#include "ops/reduce.h"
#include "ops/reshape.h"
#include "ops/upsample.h"

namespace plimsoll {

namespace {

enum class DecodeHead : uint8_t { fcn, psp, aspp, sep_aspp };

struct MmsegConfig {
  explicit MmsegConfig(const Config& c)
      : depth(c.size({"depth"}, 50)),
        num_classes(c.size({"num_classes"}, 19)),
        channels(c.size({"channels"}, 512)),
        dropout(c.number({"dropout_ratio"}, 0.1)) {
    if (depth != 50 && depth != 101) throw Error("[" + c.source() + "] depth " + std::to_string(depth) + " is not known", "known: 50, 101");
    const std::string name = c.text({"decode_head"}, "FCNHead");
    const char* names[]{"FCNHead", "PSPHead", "ASPPHead", "DepthwiseSeparableASPPHead"};
    const auto found = std::find(std::begin(names), std::end(names), name);
    if (found == std::end(names))
      throw Error("[" + c.source() + "] decode_head '" + name + "' is not known",
                  "known: FCNHead, PSPHead, ASPPHead, DepthwiseSeparableASPPHead");
    head = static_cast<DecodeHead>(found - std::begin(names));
    backbone.layers[2] = depth == 50 ? 6 : 23;
    backbone.dilate[2] = backbone.dilate[3] = true;
    backbone.deep_stem = true;
  }
  int64_t depth, num_classes, channels;
  double dropout;
  DecodeHead head = DecodeHead::fcn;
  ResNetOptions backbone;
};

// ConvModule: convolution, norm, ReLU in place
struct ConvModule : Sequential {
  ConvModule(Module& parent, std::string_view name, int64_t in, int64_t out, int64_t kernel = 1, int64_t dilation = 1)
      : Sequential(parent, name) {
    add_conv(*this, in, out, {.kernel = kernel, .padding = kernel == 1 ? 0 : dilation, .dilation = dilation}, true);
  }
};

// DepthwiseSeparableConvModule
struct SeparableConv : Sequential {
  SeparableConv(Module& parent, std::string_view name, int64_t in, int64_t out, int64_t dilation = 1) : Sequential(parent, name) {
    add_conv(*this, in, in, {.kernel = 3, .padding = dilation, .dilation = dilation, .groups = in}, true);
    add_conv(*this, in, out, {}, true);
  }
};

// Features of the four stages.
struct Stages {
  Tensor c1, c3, c4;
};

// BaseDecodeHead: cls_seg is dropout of whole channels and a convolution.
struct SegHead : Module {
  SegHead(Module& parent, std::string_view name, const MmsegConfig& c, int64_t channels)
      : Module(parent, name), dropout(c.dropout), conv_seg(*this, "conv_seg", channels, c.num_classes, Conv2dOptions{}) {}
  virtual Tensor features(const Stages& x) const = 0;

  Tensor operator()(const Stages& x) const {
    Forward here(*this);
    Tensor feat = features(x);
    if (dropout > 0) {
      const Tensor noise = filled(tape(), "bernoulli_", {feat.size(0), feat.size(1), 1, 1}, feat.dtype());
      feat = mul(feat, noise);
    }
    return conv_seg(feat);  // (N, classes, h, w)
  }

  double dropout;
  Conv2d conv_seg;
};

struct FcnHead : SegHead {
  FcnHead(Module& parent, std::string_view name, const MmsegConfig& c, int64_t in, int64_t channels, int64_t convs_count, bool of_third)
      : SegHead(parent, name, c, channels), third(of_third) {
    for (int64_t i = 0; i < convs_count; ++i) convs.add<ConvModule>(i == 0 ? in : channels, channels, 3);
    if (!of_third) conv_cat = std::make_unique<ConvModule>(*this, "conv_cat", in + channels, channels, 3);
  }
  Tensor features(const Stages& s) const override {
    const Tensor& x = third ? s.c3 : s.c4;
    Tensor feats = convs(x);
    if (conv_cat) feats = (*conv_cat)(cat({x, feats}, 1));  // concat_input
    return feats;
  }
  bool third;
  Sequential convs{*this, "convs"};
  std::unique_ptr<ConvModule> conv_cat;
};

struct PooledConv : Sequential {
  PooledConv(Module& parent, std::string_view name, int64_t in, int64_t out, int64_t scale) : Sequential(parent, name) {
    add<AdaptiveAvgPool2d>(scale);
    add<ConvModule>(in, out);
  }
};

struct PspHead : SegHead {
  PspHead(Module& parent, std::string_view name, const MmsegConfig& c)
      : SegHead(parent, name, c, c.channels), bottleneck((add_scales(c), *this), "bottleneck", 2048 + 4 * c.channels, c.channels, 3) {}
  void add_scales(const MmsegConfig& c) {
    for (const int64_t scale : {1, 2, 3, 6}) psp_modules.add(2048, c.channels, scale);
  }
  Tensor features(const Stages& s) const override {
    Tensors outs{s.c4};
    for (const PooledConv& part : scales()) {
      const Tensor pooled = part(s.c4);
      outs.push_back(upsample_bilinear2d(pooled, s.c4.size(2), s.c4.size(3)));
    }
    const Tensor joined = cat(outs, 1);
    return bottleneck(joined);
  }
  ModuleList<PooledConv>& scales() const { return const_cast<PspHead*>(this)->psp_modules; }
  ModuleList<PooledConv> psp_modules{*this, "psp_modules"};
  ConvModule bottleneck;
};

struct AsppHead : SegHead {
  AsppHead(Module& parent, std::string_view name, const MmsegConfig& c)
      : SegHead(parent, name, c, c.channels),
        separable(c.head == DecodeHead::sep_aspp),
        image_pool(*this, "image_pool", 2048, c.channels, 1),
        bottleneck((add_rates(c), *this), "bottleneck", 5 * c.channels, c.channels, 3) {
    if (!separable) return;
    c1_bottleneck = std::make_unique<ConvModule>(*this, "c1_bottleneck", 256, 48);
    sep_bottleneck = std::make_unique<Sequential>(*this, "sep_bottleneck");
    sep_bottleneck->add<SeparableConv>(c.channels + 48, c.channels);
    sep_bottleneck->add<SeparableConv>(c.channels, c.channels);
  }
  void add_rates(const MmsegConfig& c) {
    for (const int64_t rate : {1, 12, 24, 36}) {
      aspp_modules.push_back(std::make_unique<Sequential>(*this, "aspp_modules." + std::to_string(aspp_modules.size())));
      if (rate == 1)
        aspp_modules.back()->add<ConvModule>(2048, c.channels);
      else if (separable)
        aspp_modules.back()->add<SeparableConv>(2048, c.channels, rate);
      else
        aspp_modules.back()->add<ConvModule>(2048, c.channels, 3, rate);
    }
  }
  Tensor features(const Stages& s) const override {
    Tensors outs;
    {
      const Tensor pooled = image_pool(s.c4);
      outs.push_back(upsample_bilinear2d(pooled, s.c4.size(2), s.c4.size(3)));
    }
    for (const auto& part : aspp_modules) outs.push_back((*part)(s.c4));
    outs = {cat(outs, 1)};
    Tensor output = bottleneck(outs[0]);
    if (!separable) return output;
    const Tensor c1_output = (*c1_bottleneck)(s.c1);
    output = upsample_bilinear2d(output, c1_output.size(2), c1_output.size(3));
    output = cat({output, c1_output}, 1);
    return (*sep_bottleneck)(output);
  }
  bool separable;
  PooledConv image_pool;
  std::vector<std::unique_ptr<Sequential>> aspp_modules;
  ConvModule bottleneck;
  std::unique_ptr<ConvModule> c1_bottleneck;
  std::unique_ptr<Sequential> sep_bottleneck;
};

std::unique_ptr<SegHead> make_decode_head(Module& parent, const MmsegConfig& c) {
  if (c.head == DecodeHead::psp) return std::make_unique<PspHead>(parent, "decode_head", c);
  if (c.head == DecodeHead::fcn) return std::make_unique<FcnHead>(parent, "decode_head", c, 2048, c.channels, 2, false);
  return std::make_unique<AsppHead>(parent, "decode_head", c);
}

struct EncoderDecoder : Model {
  EncoderDecoder(Build& build, const Config& c) : Model(build), raw(c), config(c), decode_head(make_decode_head(*this, config)) {}

  struct Backbone : Module {
    Backbone(Module& parent, std::string_view name, const MmsegConfig& c) : Module(parent, name), trunk(*this, c.backbone) {}
    ResNetTrunk trunk;
  };

  int64_t side(const char* key, int64_t fallback) const { return raw.size({key}, fallback); }

  Tensors make_inputs(int64_t samples, int64_t length, DType dtype) override {
    const int64_t h = side("height", length), w = side("width", length);
    return {empty(tape(), {samples, 3, h, w}, dtype), empty(tape(), {samples, 1, h, w}, DType::int64)};
  }
  std::string sample(int64_t length) const override { return fmt::format("{} x {} pixels", side("height", length), side("width", length)); }

  Stages stages(const Tensor& pixels) const {
    const ResNetTrunk& t = backbone.trunk;
    Stages s;
    Tensor x = t.stem(pixels);  // (N, 64, H / 4, W / 4)
    x = s.c1 = run_part(t.layer1, x);
    x = run_part(t.layer2, x);
    x = s.c3 = run_part(t.layer3, x);
    s.c4 = run_part(t.layer4, x);  // (N, 2048, H / 8, W / 8)
    return s;
  }

  // BaseDecodeHead.loss_by_feat: logits resized to the labels, and a loss of every pixel
  Tensor loss_of(const SegHead& head, const Stages& s, const Tensor& labels) const {
    Tensor logits = head(s);
    logits = upsample_bilinear2d(logits, labels.size(2), labels.size(3));  // (N, classes, H, W)
    const Tensor by_pixel = cross_entropy_by_element(logits, squeeze(labels, 1));
    return mean(reshape(by_pixel, {-1}), {0}, false);
  }

  Output forward(const Batch& batch) override {
    const Stages s = stages(batch.own[0]);
    const Tensor loss = loss_of(*decode_head, s, batch.own[1]);
    const Tensor aux = loss_of(auxiliary_head, s, batch.own[1]);
    return {add(loss, mul_scalar(aux)), {}};
  }

  Config raw;
  MmsegConfig config;
  Backbone backbone{*this, "backbone", config};
  std::unique_ptr<SegHead> decode_head;
  FcnHead auxiliary_head{*this, "auxiliary_head", config, 1024, 256, 1, true};
};

std::unique_ptr<Model> make_mmseg(Build& build, const Config& config) { return std::make_unique<EncoderDecoder>(build, config); }

}  // namespace

const Family& mmseg_family() {
  static const Family kFamily{
      .name = "mmseg",
      .library = "mmsegmentation",
      .models = {{"mmseg", {}, InputKind::own, 512, make_mmseg}},
  };
  return kFamily;
}

}  // namespace plimsoll
