// YOLOv8's detector (ultralytics, yolov8.yaml): backbone of C2f blocks, path-aggregating neck, decoupled head, in its five sizes. The loss
// is dense and of fixed shapes: every anchor has a target, where a real run assigns targets to some of them.
// tools/recorder/yolov8.py is the reference; modules are numbered as in the yaml.
#include <fmt/format.h>

#include <cmath>
#include <map>

#include "model/family.h"
#include "nn/vision.h"
#include "ops/loss.h"
#include "ops/matmul.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"
#include "ops/upsample.h"
#include "util/text.h"

namespace plimsoll {

namespace {

constexpr int64_t kBins = 16;  // reg_max: a side of a box is a distribution over so many distances

struct Scale {
  const char* name;
  double depth, width;
  int64_t max_channels;
};
constexpr Scale kScales[] = {
    {"n", 1.0 / 3, 0.25, 1024}, {"s", 1.0 / 3, 0.5, 1024}, {"m", 2.0 / 3, 0.75, 768}, {"l", 1.0, 1.0, 512}, {"x", 1.0, 1.25, 512}};

const Scale& scale_of(const Config& c) {
  const std::string name = c.text({"scale"}, "n");
  for (const Scale& s : kScales)
    if (name == s.name) return s;
  throw Error(fmt::format("[{}] scale '{}' is not known", c.source(), name), "known: n, s, m, l, x");
}

struct YoloConfig {
  explicit YoloConfig(const Config& c) : scale(scale_of(c)), nc(c.size({"nc", "num_classes"}, 80)) {
    require_known_arguments(c, "yolov8", {"scale", "nc"});
  }
  int64_t channels(int64_t usual) const {
    return static_cast<int64_t>(std::ceil(static_cast<double>(std::min(usual, scale.max_channels)) * scale.width / 8)) * 8;
  }
  int64_t repeats(int64_t usual) const { return std::max<int64_t>(std::lround(static_cast<double>(usual) * scale.depth), 1); }

  const Scale& scale;
  int64_t nc;
};

// Convolution, batch norm, SiLU in place.
struct Conv : Module {
  Conv(Module& parent, std::string_view name, int64_t in, int64_t out, int64_t kernel = 1, int64_t stride = 1)
      : Module(parent, name),
        conv(*this, "conv", in, out, {.kernel = kernel, .stride = stride, .padding = kernel / 2, .bias = false}),
        bn(*this, "bn", out) {}

  Tensor operator()(const Tensor& x) const {
    Forward here(*this);
    Tensor y = conv(x);
    y = bn(y);
    return act(y);
  }

  Conv2d conv;
  BatchNorm2d bn;
  Activation act{*this, "act", Act::silu, true};
};

struct Bottleneck : Module {
  Bottleneck(Module& parent, std::string_view name, int64_t channels, bool shortcut)
      : Module(parent, name), shortcut(shortcut), cv1(*this, "cv1", channels, channels, 3), cv2(*this, "cv2", channels, channels, 3) {}

  Tensor operator()(const Tensor& x) const {
    Forward here(*this);
    Tensor y = cv1(x);
    y = cv2(y);
    return shortcut ? add(x, y) : y;
  }

  bool shortcut;
  Conv cv1, cv2;
};

struct C2f : Module {
  C2f(Module& parent, std::string_view name, int64_t in, int64_t out, int64_t repeats, bool shortcut)
      : Module(parent, name), cv1(*this, "cv1", in, out / 2 * 2), cv2(*this, "cv2", checked_mul(2 + repeats, out / 2), out) {
    for (int64_t i = 0; i < repeats; ++i) m.add(out / 2, shortcut);
  }

  Tensor operator()(const Tensor& x) {
    Forward here(*this);
    Tensors y = chunk(cv1(x), 2, 1);
    for (const Bottleneck& block : m) y.push_back(block(y.back()));
    return cv2(cat(y, 1));
  }

  Conv cv1, cv2;
  ModuleList<Bottleneck> m{*this, "m"};
};

struct SPPF : Module {
  SPPF(Module& parent, std::string_view name, int64_t in, int64_t out)
      : Module(parent, name), cv1(*this, "cv1", in, in / 2), cv2(*this, "cv2", in / 2 * 4, out) {}

  Tensor operator()(const Tensor& x) const {
    Forward here(*this);
    Tensors y{cv1(x)};
    for (int i = 0; i < 3; ++i) y.push_back(m(y.back()));
    return cv2(cat(y, 1));
  }

  Conv cv1, cv2;
  MaxPool2d m{*this, "m", PoolOptions{5, 1, 2}};
};

// One branch of the head at one level: boxes or classes.
struct YoloBranch : Sequential {
  YoloBranch(Module& parent, std::string_view name, int64_t in, int64_t mid, int64_t out) : Sequential(parent, name) {
    add<Conv>(in, mid, 3);
    add<Conv>(mid, mid, 3);
    add<Conv2d>(mid, out, Conv2dOptions{});
  }
};

struct Detect : Module {
  Detect(Module& parent, std::string_view name, int64_t nc, const std::vector<int64_t>& channels) : Module(parent, name) {
    const int64_t box = std::max({int64_t{16}, channels[0] / 4, 4 * kBins}), cls = std::max(channels[0], std::min<int64_t>(nc, 100));
    for (const int64_t c : channels) cv2.add(c, box, 4 * kBins);
    for (const int64_t c : channels) cv3.add(c, cls, nc);
  }

  Tensors operator()(Tensors x) {
    Forward here(*this);
    BlockDepth inside(build());  // a block of the network, though never checkpointed: it writes into its list of inputs
    for (size_t i = 0; i < x.size(); ++i) {
      const Tensor boxes = cv2[i](x[i]), classes = cv3[i](x[i]);
      x[i] = cat({boxes, classes}, 1);
    }
    return x;
  }

  // The mean of a distribution as a convolution that is never trained.
  struct DFL : Module {
    DFL(Module& parent, std::string_view name) : Module(parent, name), conv(*this, "conv") {}
    struct Frozen : Module {
      Frozen(Module& parent, std::string_view name) : Module(parent, name) { parameter("weight", {1, kBins, 1, 1}, build().dtype, false); }
    };
    Frozen conv;
  };

  ModuleList<YoloBranch> cv2{*this, "cv2"};
  ModuleList<YoloBranch> cv3{*this, "cv3"};
  DFL dfl{*this, "dfl"};
};

// The layers of yolov8.yaml, by their numbers; those without parameters (up-sampling, concatenation) have no object.
struct YoloLayers : Module {
  YoloLayers(Module& parent, std::string_view name, const YoloConfig& y) : Module(parent, name) {
    auto c = [&](int64_t usual) { return y.channels(usual); };
    auto n = [&](int64_t usual) { return y.repeats(usual); };
    add<Conv>(0, 3, c(64), 3, 2);
    add<Conv>(1, c(64), c(128), 3, 2);
    add<C2f>(2, c(128), c(128), n(3), true);
    add<Conv>(3, c(128), c(256), 3, 2);
    add<C2f>(4, c(256), c(256), n(6), true);
    add<Conv>(5, c(256), c(512), 3, 2);
    add<C2f>(6, c(512), c(512), n(6), true);
    add<Conv>(7, c(512), c(1024), 3, 2);
    add<C2f>(8, c(1024), c(1024), n(3), true);
    add<SPPF>(9, c(1024), c(1024));
    add<C2f>(12, c(1024) + c(512), c(512), n(3), false);
    add<C2f>(15, c(512) + c(256), c(256), n(3), false);
    add<Conv>(16, c(256), c(256), 3, 2);
    add<C2f>(18, c(256) + c(512), c(512), n(3), false);
    add<Conv>(19, c(512), c(512), 3, 2);
    add<C2f>(21, c(512) + c(1024), c(1024), n(3), false);
    detect = std::make_unique<Detect>(*this, "22", y.nc, std::vector<int64_t>{c(256), c(512), c(1024)});
  }

  // Levels of 8, 16 and 32 pixels a cell, each with boxes and classes: (B, 4 * bins + nc, H, W)
  Tensors operator()(const Tensor& images) {
    std::map<int, Tensor> y;  // what later layers read
    Tensor x = images;
    for (int i = 0; i < 22; ++i) {
      if (const auto found = run_.find(i); found != run_.end())
        x = found->second(x);
      else if (i == 10 || i == 13)
        x = upsample_nearest2d(x, 2 * x.size(2), 2 * x.size(3));
      else
        x = cat({x, y.at(i == 11 ? 6 : i == 14 ? 4 : i == 17 ? 12 : 9)}, 1);
      for (const int kept : {4, 6, 9, 12, 15, 18, 21})
        if (i == kept) y[i] = x;
    }
    x.reset();
    return (*detect)({y[15], y[18], y[21]});
  }

 private:
  template <class T, class... Args>
  void add(int number, Args... args) {
    auto owned = std::make_unique<T>(*this, std::to_string(number), args...);
    run_[number] = [&module = *owned](const Tensor& x) {
      return run_block(
          module, [&module](const Tensor& h) { return module(h); }, x);
    };
    owned_.push_back(std::move(owned));
  }

  std::vector<std::unique_ptr<Module>> owned_;
  std::map<int, std::function<Tensor(const Tensor&)>> run_;
  std::unique_ptr<Detect> detect;
};

struct YOLOv8 : Model {
  YOLOv8(Build& build, const Config& c) : Model(build), config(c) {}

  Tensors make_inputs(int64_t samples, int64_t side, DType dtype) override {
    if (side % 32 != 0)
      throw Error(fmt::format("[yolov8] images of {} pixels a side do not have whole cells of 32", side),
                  fmt::format("use {} or {}", std::max<int64_t>(32, side / 32 * 32), side / 32 * 32 + 32));
    const int64_t anchors = cells(side / 8) + cells(side / 16) + cells(side / 32);
    return {empty(tape(), {samples, 3, side, side}, dtype), empty(tape(), {samples, anchors, config.nc}, dtype),
            empty(tape(), {samples, anchors, 4}, dtype), empty(tape(), {checked_mul(checked_mul(samples, anchors), 4)}, DType::int64)};
  }

  std::string sample(int64_t side) const override { return fmt::format("{} x {} pixels", side, side); }

  Output forward(const Batch& batch) override {
    const Tensor &images = batch.own[0], &scores = batch.own[1], &boxes = batch.own[2], &bins = batch.own[3];
    const int64_t b = images.size(0);
    const Tensors feats = model(images);
    Tensors parts = joined(feats, b);  // (B, 4 * bins, anchors), (B, nc, anchors)
    Tensor &distances = parts[0], &classes = parts[1];
    classes = contiguous(permute(classes, {0, 2, 1}));
    distances = contiguous(permute(distances, {0, 2, 1}));
    const Tensor bin_values = view(to(arange(tape(), kBins), distances.dtype()), {kBins, 1});
    const Tensor decoded = squeeze(matmul(softmax(view(distances, {b, -1, 4, kBins})), bin_values), 3);  // (B, anchors, 4)
    Tensor loss = binary_cross_entropy_with_logits(classes, scores);
    loss = add(loss, mse_loss(decoded, boxes));
    return {add(loss, cross_entropy(view(distances, {-1, kBins}), bins)), {}};
  }

 private:
  static int64_t cells(int64_t side) { return checked_mul(side, side); }

  Tensors joined(const Tensors& feats, int64_t b) const {
    Tensors flat;
    for (const Tensor& f : feats) flat.push_back(view(f, {b, f.size(1), -1}));
    return split(cat(flat, 2), {4 * kBins, config.nc}, 1);
  }

  YoloConfig config;
  YoloLayers model{*this, "model", config};
};

std::unique_ptr<Model> make_yolov8(Build& build, const Config& config) { return std::make_unique<YOLOv8>(build, config); }

}  // namespace

const Family& yolov8_family() {
  static const Family kFamily{
      .name = "yolov8",
      .library = "ultralytics",
      .models = {{"yolov8", {}, InputKind::own, 640, make_yolov8}},
      .presets = {{"yolov8n", R"({"scale":"n"})", 640},
                  {"yolov8s", R"({"scale":"s"})", 640},
                  {"yolov8m", R"({"scale":"m"})", 640},
                  {"yolov8l", R"({"scale":"l"})", 640},
                  {"yolov8x", R"({"scale":"x"})", 640}},
  };
  return kFamily;
}

}  // namespace plimsoll
