#include "model/diffusion/fsdm_config.h"

#include <fmt/format.h>

#include <charconv>

#include "nn/vision.h"
#include "util/text.h"

namespace plimsoll {

namespace {

constexpr int64_t kMostImages = 1000;  // of a set: each is one run of the encoder

// "all", or the numbers of the blocks that have a cross-attention: "2,3,4,5".
std::set<int64_t> cross_attention_blocks(const Config& c, int64_t depth) {
  const std::string text = c.text({"cross_attn_layers"}, "all");
  std::set<int64_t> blocks;
  if (text == "all") {
    for (int64_t i = 0; i < depth; ++i) blocks.insert(i);
    return blocks;
  }
  for (const std::string& part : split_at(text, ',')) {
    int64_t block = -1;
    const char* end = part.data() + part.size();
    const auto [rest, problem] = std::from_chars(part.data(), end, block);
    if (problem != std::errc() || rest != end || block < 0 || block >= depth)
      throw Error(fmt::format("[{}] cross_attn_layers has '{}', expected blocks from 0 to {}", c.source(), part, depth - 1),
                  "write all, or numbers with commas between them: 2,3,4,5");
    blocks.insert(block);
  }
  return blocks;
}

int64_t scaled(const Config& c, const char* key, const char* alias, double fallback, int64_t width) {
  const double ratio = c.number({key, alias}, fallback);
  if (!(ratio * static_cast<double>(width) >= 1.0 && ratio <= 1e6))
    throw Error(fmt::format("[{}] {} {:g} leaves nothing of a width of {}", c.source(), key, ratio, width), "choose a ratio around 1 to 4");
  return static_cast<int64_t>(static_cast<double>(width) * ratio);
}

}  // namespace

FsdmConfig::FsdmConfig(const Config& c)
    : sample_size(c.size({"sample_size", "ns"}, 6)),
      image_size(c.size({"image_size", "img"}, 32)),
      patch_size(c.size({"patch_size", "patch"}, 2)),
      diffusion_steps(c.size({"diffusion_steps", "steps"}, 250)),
      dropout(probability(c, "dropout", 0.0)),
      hidden_size(c.size({"hidden_size", "hidden"}, 468)),
      depth(c.size({"depth"}, 6)),
      num_heads(c.size({"num_heads", "heads"}, 9)),
      mlp_dim(scaled(c, "mlp_ratio", "mlp", 3.0, hidden_size)),
      cross_attn_blocks(cross_attention_blocks(c, depth)),
      use_remat(c.flag({"use_remat"}, false)),
      hdim(c.size({"hdim"}, 256)),
      encoder_depth(c.size({"encoder_depth", "edepth"}, 6)),
      encoder_heads(c.size({"encoder_heads", "eheads"}, 12)),
      encoder_dim_head(c.size({"encoder_dim_head", "edh"}, 64)),
      encoder_mlp_dim(scaled(c, "encoder_mlp_ratio", "emlp", 1.0, hdim)),
      grid(image_size / patch_size) {
  require_known_arguments(c, "fsdm",
                          {"ns",
                           "hidden",
                           "heads",
                           "mlp",
                           "edepth",
                           "eheads",
                           "edh",
                           "emlp",
                           "img",
                           "patch",
                           "steps",
                           "sample_size",
                           "image_size",
                           "patch_size",
                           "dropout",
                           "hidden_size",
                           "depth",
                           "num_heads",
                           "mlp_ratio",
                           "diffusion_steps",
                           "use_remat",
                           "hdim",
                           "encoder_depth",
                           "encoder_heads",
                           "encoder_dim_head",
                           "encoder_mlp_ratio",
                           "mode_conditioning",
                           "context_channels",
                           "context_pool_size",
                           "cross_attn_layers"});
  if (sample_size > kMostImages)
    throw Error(fmt::format("[{}] sample_size {} is more than {}", c.source(), sample_size, kMostImages), "a set has a few images");
  c.require_divides("patch_size", patch_size, "image_size", image_size);
  c.require_divides("num_heads", num_heads, "hidden_size", hidden_size);
  if (hdim < 8) throw Error(fmt::format("[{}] hdim {} is too narrow for the embedding of time", c.source(), hdim), "choose at least 8");
  if (const std::string mode = c.text({"mode_conditioning"}, "lag"); mode != "lag")
    throw Error(fmt::format("[{}] mode_conditioning '{}' is not simulated", c.source(), mode), "choose lag: cross-attention to the tokens");
  if (const int64_t channels = c.size({"context_channels"}, hdim); channels != hdim)
    throw Error(fmt::format("[{}] context_channels {} is not hdim {}: the context is the encoder's tokens", c.source(), channels, hdim),
                "leave context_channels out");
  const int64_t pool = c.integer({"context_pool_size"}, 0);
  if (pool < 0) throw Error(fmt::format("[{}] context_pool_size is {}", c.source(), pool), "give a number of tokens, or 0 for all of them");
  if (pool > 0 && pool < patches()) {
    c.require_divides("context_pool_size", pool, "the number of patches,", patches());
    context_pool_size = pool;
  }
}

}  // namespace plimsoll
