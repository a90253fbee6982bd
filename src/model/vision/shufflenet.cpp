// torchvision.models.shufflenetv2: ShuffleNetV2.
#include "model/family.h"
#include "nn/vision.h"
#include "ops/reduce.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

struct ShufflenetVariant {
  const char* name;
  int64_t channels[5];  // stages_out_channels
};

constexpr ShufflenetVariant kShufflenetVariants[] = {
    {"shufflenet_v2_x0_5", {24, 48, 96, 192, 1024}},
    {"shufflenet_v2_x1_0", {24, 116, 232, 464, 1024}},
    {"shufflenet_v2_x1_5", {24, 176, 352, 704, 1024}},
    {"shufflenet_v2_x2_0", {24, 244, 488, 976, 2048}},
};
constexpr int kRepeats[3] = {4, 8, 4};

Tensor channel_shuffle(Tensor x, int64_t groups) {
  const int64_t n = x.size(0), c = x.size(1), h = x.size(2), w = x.size(3);
  x = view(x, {n, groups, c / groups, h, w});
  x = contiguous(transpose(x, 1, 2));  // (N, C / groups, groups, H, W)
  x = view(x, {n, c, h, w});
  return x;
}

struct ShufflenetResidual : Module {
  ShufflenetResidual(Module& parent, std::string_view name, int64_t in, int64_t out, int64_t stride)
      : Module(parent, name), stride(stride) {
    const int64_t branch = out / 2;
    if (stride > 1) {
      add_conv(branch1, in, in, {.kernel = 3, .stride = stride, .padding = 1, .groups = in}, false);
      add_conv(branch1, in, branch, {.kernel = 1}, true);
    }
    add_conv(branch2, stride > 1 ? in : branch, branch, {.kernel = 1}, true);
    add_conv(branch2, branch, branch, {.kernel = 3, .stride = stride, .padding = 1, .groups = branch}, false);
    add_conv(branch2, branch, branch, {.kernel = 1}, true);
  }

  Tensor operator()(const Tensor& x) const {
    Forward here(*this);
    Tensors halves;  // x1, x2 live until the end of the Python function
    Tensor out;
    if (stride == 1) {
      halves = chunk(x, 2, 1);  // 2 x (N, C / 2, H, W)
      const Tensor right = branch2(halves[1]);
      out = cat({halves[0], right}, 1);  // (N, C, H, W)
    } else {
      const Tensor left = branch1(x), right = branch2(x);  // (N, out / 2, H / 2, W / 2)
      out = cat({left, right}, 1);                         // (N, out, H / 2, W / 2)
    }
    out = channel_shuffle(out, 2);
    return out;
  }

  int64_t stride;
  Sequential branch1{*this, "branch1"};
  Sequential branch2{*this, "branch2"};
};

struct ShuffleNetV2 : ImageClassifier {
  ShuffleNetV2(Build& build, const Config& c, const ShufflenetVariant& v)
      : ImageClassifier(build), fc(make_layers(v), "fc", v.channels[4], c.size({"num_classes"}, 1000)) {
    require_known_arguments(c, "shufflenet_v2", {});
  }

  Module& make_layers(const ShufflenetVariant& v) {
    add_conv(conv1, 3, v.channels[0], {.kernel = 3, .stride = 2, .padding = 1}, true);
    Sequential* stages[] = {&stage2, &stage3, &stage4};
    for (int i = 0; i < 3; ++i) {
      stages[i]->add<ShufflenetResidual>(v.channels[i], v.channels[i + 1], 2);
      for (int k = 1; k < kRepeats[i]; ++k) stages[i]->add<ShufflenetResidual>(v.channels[i + 1], v.channels[i + 1], 1);
    }
    add_conv(conv5, v.channels[3], v.channels[4], {.kernel = 1}, true);
    return *this;
  }

  Tensor operator()(const Tensor& pixels) override {
    Tensor x = conv1(pixels);    // (N, 24, H / 2, W / 2)
    x = maxpool(x);              // (N, 24, H / 4, W / 4)
    x = stage2(x);               // (N, C2, H / 8, W / 8)
    x = stage3(x);               // (N, C3, H / 16, W / 16)
    x = stage4(x);               // (N, C4, H / 32, W / 32)
    x = conv5(x);                // (N, C5, H / 32, W / 32)
    x = mean(x, {2, 3}, false);  // (N, C5)
    x = fc(x);                   // (N, classes)
    return x;
  }

  Sequential conv1{*this, "conv1"};
  MaxPool2d maxpool{*this, "maxpool", {.kernel = 3, .stride = 2, .padding = 1}};
  Sequential stage2{*this, "stage2"};
  Sequential stage3{*this, "stage3"};
  Sequential stage4{*this, "stage4"};
  Sequential conv5{*this, "conv5"};
  Linear fc;
};

std::unique_ptr<Model> make_shufflenet(Build& build, const Config& config, const std::string& name) {
  for (const ShufflenetVariant& v : kShufflenetVariants)
    if (name == v.name) return std::make_unique<ShuffleNetV2>(build, config, v);
  throw Error("[shufflenet_v2] '" + name + "' is not one of its variants", "see the list of models");
}

}  // namespace

const Family& shufflenet_family() {
  static const Family kFamily{
      .name = "shufflenet",
      .library = "torchvision",
      .models = torchvision_models(make_shufflenet,
                                   {{"shufflenet_v2_x0_5"}, {"shufflenet_v2_x1_0"}, {"shufflenet_v2_x1_5"}, {"shufflenet_v2_x2_0"}}),
  };
  return kFamily;
}

}  // namespace plimsoll
