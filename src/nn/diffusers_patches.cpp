#include "nn/diffusers_patches.h"

#include <fmt/format.h>

#include "nn/diffusers_layers.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll {

PatchEmbedSizes image_patches(const Config& c, int64_t width, int64_t default_sample_size) {
  const PatchEmbedSizes sizes{.sample_size = c.size({"sample_size"}, default_sample_size),
                              .patch = c.size({"patch_size"}, 2),
                              .channels = c.size({"in_channels"}, 4),
                              .width = width};
  c.require_divides("patch_size", sizes.patch, "sample_size", sizes.sample_size);
  c.require_divides("4: positions of two axes in pairs", 4, "num_attention_heads x attention_head_dim", width);
  return sizes;
}

Dims image_latent_sizes(const char* model, int64_t samples, const Canvas& c, const PatchEmbedSizes& s) {
  const int64_t token = checked_mul(8, s.patch);
  return {samples, s.channels, tokens_along(model, "height", c.height, token) * s.patch,
          tokens_along(model, "width", c.width, token) * s.patch};
}

Tensor mean_of(const Tensor& prediction, int64_t channels) {
  return prediction.size(1) == channels ? prediction : chunk(prediction, 2, 1)[0];
}

PatchEmbed::PatchEmbed(Module& parent, std::string_view name, const PatchEmbedSizes& s)
    : Module(parent, name), sizes_(s), proj_(*this, "proj", s.channels, s.width, {.kernel = s.patch, .stride = s.patch}) {
  const int64_t side = s.max_size ? s.max_size : s.sample_size / s.patch;
  pos_embed_ = buffer("pos_embed", {1, checked_mul(side, side), s.width});
}

Tensor PatchEmbed::operator()(const Tensor& input) const {
  Forward here(*this);
  const int64_t rows = input.size(2) / sizes_.patch, columns = input.size(3) / sizes_.patch;
  Tensor latent = proj_(input);                  // (B, width, rows, columns)
  latent = transpose(flatten(latent, 2), 1, 2);  // (B, rows columns, width)
  const Tensor pos_embed = positions(rows, columns);
  const Tensor sum = add(latent, pos_embed);
  return to(sum, latent.dtype());
}

Tensor PatchEmbed::positions(int64_t rows, int64_t columns) const {
  if (sizes_.max_size) return cropped(rows, columns);
  const int64_t side = sizes_.sample_size / sizes_.patch;
  return rows == side && columns == side ? pos_embed_ : made(rows, columns);
}

// The middle of the table.
Tensor PatchEmbed::cropped(int64_t rows, int64_t columns) const {
  const int64_t side = sizes_.max_size;
  if (rows > side || columns > side)
    throw Error(fmt::format("[patch_embed] {} x {} patches, but pos_embed_max_size is {}", rows, columns, side),
                fmt::format("use images of at most {} pixels a side", side * sizes_.patch * 8));
  const int64_t top = (side - rows) / 2, left = (side - columns) / 2;
  Tensor spatial = view(pos_embed_, {1, side, side, -1});
  spatial = slice(slice(spatial, 1, top, top + rows), 2, left, left + columns);
  return reshape(spatial, {1, -1, sizes_.width});
}

namespace {

// get_1d_sincos_pos_embed_from_grid, in fp64. (M) -> (M, dim)
Tensor sines(int64_t dim, const Tensor& pos) {
  Tensor omega = arange(pos.tape(), dim / 2, DType::float64);
  {
    const Tensor power = nondiff("pow", omega, DType::float64);
    const Tensor inverse = nondiff("reciprocal", power, DType::float64);
    omega = nondiff("mul", inverse, DType::float64);
  }
  const Tensor out = mul(view(pos, {-1, 1}), omega);  // (M, dim / 2)
  const Tensor sine = sin(out), cosine = cos(out);
  return cat({sine, cosine}, 1);
}

// arange(n) / (n / base) / scale
Tensor axis(Tape& tape, int64_t n) {
  Tensor grid = arange(tape, n, DType::float32);
  for (int i = 0; i < 2; ++i) grid = nondiff("div", grid, DType::float32);
  return grid;
}

}  // namespace

// get_2d_sincos_pos_embed for another size than the stored one.
Tensor PatchEmbed::made(int64_t rows, int64_t columns) const {
  const Tensor grid_h = axis(tape(), rows), grid_w = axis(tape(), columns);
  const Tensor across = expand(grid_w, {rows, columns}), down = expand(unsqueeze(grid_h, 1), {rows, columns});
  const Tensor grid = view(stack({across, down}, 0), {2, 1, columns, rows});
  Tensor embed;
  {
    const Tensor h = sines(sizes_.width / 2, reshape(select(grid, 0, 0), {-1}));
    const Tensor w = sines(sizes_.width / 2, reshape(select(grid, 0, 1), {-1}));
    embed = cat({h, w}, 1);  // (rows columns, width)
  }
  return unsqueeze(to(embed, DType::float32), 0);
}

Tensor unpatchify(Tensor tokens, int64_t rows, int64_t columns, int64_t patch) {
  const int64_t batch = tokens.size(0), channels = tokens.size(2) / (patch * patch);
  tokens = view(tokens, {batch, rows, columns, patch, patch, channels});
  tokens = permute(tokens, {0, 5, 1, 3, 2, 4});
  return reshape(tokens, {batch, channels, rows * patch, columns * patch});
}

}  // namespace plimsoll
