#include "nn/video_latents.h"

#include <fmt/format.h>

#include "nn/diffusers_layers.h"
#include "ops/conv.h"

namespace plimsoll {

Dims video_latent_sizes(const char* model, int64_t samples, int64_t channels, const Canvas& c, const PatchSize& patch) {
  if ((c.frames - 1) % 4 != 0)
    throw Error(fmt::format("[{}] frames {} is not one more than a multiple of 4", model, c.frames),
                fmt::format("the VAE takes one frame and then four at a time: use {}", (c.frames - 1) / 4 * 4 + 1));
  const int64_t frames = (c.frames - 1) / 4 + 1;
  if (frames % patch.frames != 0)
    throw Error(fmt::format("[{}] {} frames are {} latent frames, not a multiple of the patch's {}", model, c.frames, frames, patch.frames),
                "change frames or patch_size");
  return {samples, channels, frames, tokens_along(model, "height", c.height, 8 * patch.height) * patch.height,
          tokens_along(model, "width", c.width, 8 * patch.width) * patch.width};
}

PatchConv3d::PatchConv3d(Module& parent, std::string_view name, int64_t in, int64_t out, const PatchSize& p)
    : Module(parent, name), weight(parameter("weight", {out, in, p.frames, p.height, p.width})), bias(parameter("bias", {out})) {}

Tensor PatchConv3d::operator()(const Tensor& x) const {
  Forward here(*this);
  return patch_conv3d(x, weight, bias);
}

}  // namespace plimsoll
