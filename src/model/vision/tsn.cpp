// mmaction2 0.x: 2D recognizers of videos, TSN and TSM, on a ResNet. A sample is so many frames, each an image of the batch.
#include <fmt/format.h>

#include "model/family.h"
#include "nn/resnet.h"
#include "ops/loss.h"
#include "ops/reduce.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

struct TsnConfig {
  explicit TsnConfig(const Config& c)
      : depth(c.size({"depth"}, 50)),
        num_segments(c.size({"num_segments"}, 8)),
        num_classes(c.size({"num_classes"}, 400)),
        shifts(c.flag({"temporal_shift"}, false)),
        dropout(c.number({"dropout_ratio"}, 0.4)) {
    if (depth != 50 && depth != 101 && depth != 152)
      throw Error("[" + c.source() + "] depth " + std::to_string(depth) + " is not known", "known: 50, 101, 152");
    options.layers[1] = depth == 152 ? 8 : 4;
    options.layers[2] = depth == 50 ? 6 : depth == 101 ? 23 : 36;
    if (shifts) options.shift_segments = num_segments;
  }
  int64_t depth, num_segments, num_classes;
  bool shifts;
  double dropout;
  ResNetOptions options;
};

struct TsnBackbone : Module {
  TsnBackbone(Module& parent, std::string_view name, const TsnConfig& c) : Module(parent, name), trunk(*this, c.options) {}
  Tensor operator()(const Tensor& frames) const {
    Forward here(*this);
    Tensor x = trunk.stem(frames);
    x = run_part(trunk.layer1, x);
    x = run_part(trunk.layer2, x);
    x = run_part(trunk.layer3, x);
    return run_part(trunk.layer4, x);  // (B S, 2048, H / 32, W / 32)
  }
  ResNetTrunk trunk;
};

// TSNHead and TSMHead: the mean over frames comes before the classifier or after it.
struct TsnHead : Module {
  TsnHead(Module& parent, std::string_view name, const TsnConfig& c) : Module(parent, name), config(c) {}

  Tensor operator()(const Tensor& features) const {
    Forward here(*this);
    Tensor x = avg_pool(features);  // (B S, 2048, 1, 1)
    const auto over_frames = [&](const Tensor& t) { return mean(reshape(t, {-1, config.num_segments, t.size(1)}), {1}, false); };
    x = flatten(x, 1);
    if (!config.shifts) x = over_frames(x);
    x = dropout(x);
    x = fc_cls(x);
    return config.shifts ? over_frames(x) : x;  // (B, classes)
  }

  const TsnConfig& config;
  AdaptiveAvgPool2d avg_pool{*this, "avg_pool", 1};
  Dropout dropout{*this, "dropout", config.dropout};
  Linear fc_cls{*this, "fc_cls", 2048, config.num_classes};
};

struct Recognizer2D : Model {
  Recognizer2D(Build& build, const Config& c) : Model(build), config(c) {}

  Tensors make_inputs(int64_t samples, int64_t side, DType dtype) override {
    return {empty(tape(), {samples, config.num_segments, 3, side, side}, dtype), empty(tape(), {samples}, DType::int64)};
  }
  std::string sample(int64_t side) const override { return fmt::format("{} frames of {} x {} pixels", config.num_segments, side, side); }

  Output forward(const Batch& batch) override {
    const Tensor& imgs = batch.own[0];
    const Tensor features = backbone(reshape(imgs, {-1, 3, imgs.size(3), imgs.size(4)}));
    const Tensor scores = cls_head(features);
    return {cross_entropy(scores, batch.own[1]), {}};
  }

  TsnConfig config;
  TsnBackbone backbone{*this, "backbone", config};
  TsnHead cls_head{*this, "cls_head", config};
};

std::unique_ptr<Model> make_tsn(Build& build, const Config& config) { return std::make_unique<Recognizer2D>(build, config); }

}  // namespace

const Family& tsn_family() {
  static const Family kFamily{
      .name = "tsn",
      .library = "mmaction2",
      .models = {{"tsn", {}, InputKind::own, 224, make_tsn}},
  };
  return kFamily;
}

}  // namespace plimsoll
