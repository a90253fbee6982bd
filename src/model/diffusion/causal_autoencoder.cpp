// A training of AutoencoderKLWan or AutoencoderKLQwenImage on their own: what they give back of a video is compared with it.
#include "nn/causal_autoencoder.h"

#include <fmt/format.h>

#include "model/family.h"
#include "ops/loss.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

struct CausalAutoencoderTraining : Model {
  CausalAutoencoderTraining(Build& build, const Config& c) : Model(build), settings(c) {
    if (build.checkpointing.on()) throw Error("[autoencoder-kl-wan] gradient checkpointing is not modelled", "switch checkpointing off");
  }

  Tensors make_inputs(int64_t samples, int64_t length, DType dtype) override {
    const int64_t h = settings.size({"height"}, length), w = settings.size({"width"}, length), scale = net.config.scale();
    if (h % scale != 0 || w % scale != 0)
      throw Error(
          fmt::format("[autoencoder-kl-wan] images of {} x {}: the sides are halved {} times", h, w, net.config.dim_mult.size() - 1),
          fmt::format("use multiples of {}", scale));
    if (frames() % 4 != 1)
      throw Error(fmt::format("[autoencoder-kl-wan] {} frames: one, and four for each latent more", frames()), "use 1, 5, 9, ...");
    return {empty(tape(), {samples, net.config.in_channels, frames(), h, w}, dtype)};
  }

  Output forward(const Batch& batch) override {
    const Tensor& pixels = batch.own[0];  // (N, C, F, H, W)
    const LatentDistribution posterior = net.encode(pixels);
    const Tensor z = posterior.sample();  // (N, z, f, h, w)
    const Tensor pred = net.decode(z);    // (N, C, F, H, W)
    return {mse_loss(to(pred, DType::float32), to(pixels, DType::float32)), {}};
  }

  std::string sample(int64_t length) const override {
    return fmt::format("{} frames of {} x {} pixels", frames(), settings.size({"height"}, length), settings.size({"width"}, length));
  }
  int64_t frames() const { return settings.size({"frames"}, 1); }

  Config settings;
  CausalAutoencoder net{*this, "net", settings};
};

std::unique_ptr<Model> make_causal_autoencoder(Build& build, const Config& config) {
  return std::make_unique<CausalAutoencoderTraining>(build, config);
}

}  // namespace

const Family& autoencoder_kl_wan_family() {
  static const Family kFamily{
      .name = "autoencoder-kl-wan",
      .library = "diffusers",
      .models = {{"autoencoder-kl-wan", {"AutoencoderKLWan", "AutoencoderKLQwenImage"}, InputKind::own, 480, make_causal_autoencoder}},
      .presets = {{"qwen-image-vae", R"({})", 1024}, {"wan2.1-vae", R"({"height":480,"width":832,"frames":81})", 480}},
  };
  return kFamily;
}

}  // namespace plimsoll
