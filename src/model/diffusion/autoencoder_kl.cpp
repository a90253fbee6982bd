// Training of diffusers' AutoencoderKL: encode, sample, decode; the error of the images plus the divergence of the latents.
#include <fmt/format.h>

#include "model/family.h"
#include "nn/autoencoder_kl.h"
#include "ops/loss.h"
#include "ops/pointwise.h"
#include "ops/reduce.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

struct AutoencoderTraining : Model {
  AutoencoderTraining(Build& build, const Config& c) : Model(build), settings(c) {
    if (build.checkpointing.on())
      throw Error("[autoencoder-kl] gradient checkpointing is not modelled: diffusers nests checkpoints in its middle block",
                  "switch checkpointing off");
  }

  Tensors make_inputs(int64_t samples, int64_t length, DType dtype) override {
    const int64_t h = height(length), w = width(length);
    if (h % net.config.scale() != 0 || w % net.config.scale() != 0)
      throw Error(
          fmt::format("[autoencoder-kl] images of {} x {}: the sides are halved {} times", h, w, net.config.block_out_channels.size() - 1),
          fmt::format("use multiples of {}", net.config.scale()));
    return {empty(tape(), {samples, net.config.in_channels, h, w}, dtype)};
  }

  Output forward(const Batch& batch) override {
    const Tensor& pixels = batch.own[0];  // (N, C, H, W)
    const LatentDistribution posterior = net.encode(pixels);
    const Tensor z = posterior.sample();  // (N, latent_channels, h, w)
    const Tensor pred = net.decode(z);    // (N, C, H, W)
    const Tensor kl_loss = mean(posterior.kl(), {0}, false);
    const Tensor mse = mse_loss(to(pred, DType::float32), to(pixels, DType::float32));
    const Tensor weighted = mul_scalar(kl_loss);
    return {add(mse, weighted), {}};
  }

  std::string sample(int64_t length) const override { return fmt::format("{} x {} pixels", height(length), width(length)); }
  int64_t height(int64_t side) const { return settings.size({"height"}, side); }
  int64_t width(int64_t side) const { return settings.size({"width"}, side); }

  Config settings;
  AutoencoderKL net{*this, "net", settings};
};

std::unique_ptr<Model> make_autoencoder_kl(Build& build, const Config& config) {
  return std::make_unique<AutoencoderTraining>(build, config);
}

}  // namespace

const Family& autoencoder_kl_family() {
  static const Family kFamily{
      .name = "autoencoder-kl",
      .library = "diffusers",
      .models = {{"autoencoder-kl", {"AutoencoderKL"}, InputKind::own, 256, make_autoencoder_kl}},
      .presets =
          {{"sd-vae", R"({"block_out_channels":[128,256,512,512],"layers_per_block":2})", 512},
           {"sdxl-vae", R"({"block_out_channels":[128,256,512,512],"layers_per_block":2})", 1024},
           {"flux-vae",
            R"({"block_out_channels":[128,256,512,512],"layers_per_block":2,"latent_channels":16,"use_quant_conv":false,"use_post_quant_conv":false})",
            1024}},
  };
  return kFamily;
}

}  // namespace plimsoll
