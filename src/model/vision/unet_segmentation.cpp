// The U-Net of semantic segmentation, as people write it (milesial/Pytorch-UNet): two convolutions a level, up-sampled by transposed
// convolutions or bilinearly, cross entropy of every pixel. tools/recorder/unet_segmentation.py is the reference.
#include <fmt/format.h>

#include "model/family.h"
#include "nn/vision.h"
#include "ops/conv.h"
#include "ops/loss.h"
#include "ops/reshape.h"
#include "ops/upsample.h"

namespace plimsoll {

namespace {

struct DoubleConv : Module {
  DoubleConv(Module& parent, std::string_view name, int64_t in, int64_t mid, int64_t out) : Module(parent, name) {
    add_conv(double_conv, in, mid, {.kernel = 3, .padding = 1}, true);
    add_conv(double_conv, mid, out, {.kernel = 3, .padding = 1}, true);
  }

  Tensor operator()(const Tensor& x) const {
    Forward here(*this);
    return double_conv(x);
  }

  Sequential double_conv{*this, "double_conv"};
};

struct Down : Module {
  Down(Module& parent, std::string_view name, int64_t in, int64_t out) : Module(parent, name) {
    maxpool_conv.add<MaxPool2d>(PoolOptions{2, 2});
    maxpool_conv.add<DoubleConv>(in, out, out);
  }

  Tensor operator()(const Tensor& x) const {
    Forward here(*this);
    return maxpool_conv(x);
  }

  Sequential maxpool_conv{*this, "maxpool_conv"};
};

struct ConvTranspose2d : Module {
  ConvTranspose2d(Module& parent, std::string_view name, int64_t in, int64_t out)
      : Module(parent, name), weight(parameter("weight", {in, out, 2, 2})), bias(parameter("bias", {out})) {}

  Tensor operator()(const Tensor& x) const {
    Forward here(*this);
    return conv_transpose2d(x, weight, bias, {.stride_h = 2, .stride_w = 2});
  }

  Tensor weight, bias;
};

struct Up : Module {
  Up(Module& parent, std::string_view name, int64_t in, int64_t out, bool bilinear)
      : Module(parent, name),
        up(bilinear ? nullptr : std::make_unique<ConvTranspose2d>(*this, "up", in, in / 2)),
        conv(*this, "conv", in, bilinear ? in / 2 : out, out) {}

  Tensor operator()(const Tensor& from_below, const Tensor& skip) const {
    Forward here(*this);
    Tensor below = up ? (*up)(from_below) : upsample_bilinear2d(from_below, 2 * from_below.size(2), 2 * from_below.size(3));
    const int64_t rows = skip.size(2) - below.size(2), columns = skip.size(3) - below.size(3);
    below = constant_pad_nd(below, {columns / 2, columns - columns / 2, rows / 2, rows - rows / 2});
    const Tensor x = cat({skip, below}, 1);
    return conv(x);
  }

  std::unique_ptr<ConvTranspose2d> up;  // null: bilinear
  DoubleConv conv;
};

struct UNet : Model {
  UNet(Build& build, const Config& c)
      : Model(build),
        n_channels(c.size({"n_channels"}, 3)),
        n_classes(c.size({"n_classes"}, 2)),
        width(c.size({"base_channels"}, 64)),
        bilinear(c.flag({"bilinear"}, false)),
        conv(outc, "conv", width, n_classes, {}) {
    require_known_arguments(c, "unet-segmentation", {"n_channels", "n_classes", "base_channels", "bilinear"});
  }

  Tensors make_inputs(int64_t samples, int64_t side, DType dtype) override {
    if (side < 16)
      throw Error(fmt::format("[unet-segmentation] images of {} pixels a side: nothing is left of them", side), "use at least 16");
    return {empty(tape(), {samples, n_channels, side, side}, dtype),
            empty(tape(), {samples, side, side}, n_classes == 1 ? dtype : DType::int64)};
  }

  std::string sample(int64_t side) const override { return fmt::format("{} x {} pixels", side, side); }

  Output forward(const Batch& batch) override {
    const Tensor x1 = inc(batch.own[0]);  // (B, C, H, W)
    const Tensor x2 = down1(x1);
    const Tensor x3 = down2(x2);
    const Tensor x4 = down3(x3);
    const Tensor x5 = down4(x4);
    Tensor x = up1(x5, x4);
    x = up2(x, x3);
    x = up3(x, x2);
    x = up4(x, x1);
    const Tensor logits = conv(x);  // (B, classes, H, W)
    if (n_classes == 1) return {binary_cross_entropy_with_logits(squeeze(logits, 1), batch.own[1]), {}};
    return {cross_entropy(logits, batch.own[1]), {}};
  }

 private:
  int64_t level(int n) const { return checked_mul(width, int64_t{1} << n); }
  int64_t halved(int64_t channels) const { return bilinear ? channels / 2 : channels; }

  struct OutConv : Module {
    using Module::Module;
  };

  int64_t n_channels, n_classes, width;
  bool bilinear;
  DoubleConv inc{*this, "inc", n_channels, width, width};
  Down down1{*this, "down1", width, level(1)};
  Down down2{*this, "down2", level(1), level(2)};
  Down down3{*this, "down3", level(2), level(3)};
  Down down4{*this, "down4", level(3), halved(level(4))};
  Up up1{*this, "up1", level(4), halved(level(3)), bilinear};
  Up up2{*this, "up2", level(3), halved(level(2)), bilinear};
  Up up3{*this, "up3", level(2), halved(level(1)), bilinear};
  Up up4{*this, "up4", level(1), width, bilinear};
  OutConv outc{*this, "outc"};
  Conv2d conv;
};

std::unique_ptr<Model> make_unet_segmentation(Build& build, const Config& config) { return std::make_unique<UNet>(build, config); }

}  // namespace

const Family& unet_segmentation_family() {
  static const Family kFamily{
      .name = "unet-segmentation",
      .library = "milesial/Pytorch-UNet",
      .models = {{"unet-segmentation", {}, InputKind::own, 512, make_unet_segmentation}},
  };
  return kFamily;
}

}  // namespace plimsoll
