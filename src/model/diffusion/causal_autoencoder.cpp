#include "model/diffusion/causal_autoencoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "model/family.h"
#include "nn/diffusers_layers.h"
#include "ops/attention.h"
#include "ops/conv.h"
#include "ops/loss.h"
#include "ops/pointwise.h"
#include "ops/reduce.h"
#include "ops/reshape.h"
#include "ops/upsample.h"

namespace plimsoll {

namespace {

constexpr int64_t kKeptFrames = 2;  // CACHE_T
constexpr int64_t kPiece = 4;       // frames after the first, for one of latents

const Dims kCube{3, 3, 3}, kOnes{1, 1, 1}, kNone{0, 0, 0}, kTime{3, 1, 1};

Tensor frames(const Tensor& x, int64_t begin, int64_t end) { return getitem(x, 2, begin, end); }
Tensor last_frame(const Tensor& x) { return unsqueeze(select(x, 2, x.size(2) - 1), 2); }

// (N, C, F, H, W) -> (N F, C, H, W)
Tensor as_images(const Tensor& x) { return reshape(permute(x, {0, 2, 1, 3, 4}), {x.size(0) * x.size(2), x.size(1), x.size(3), x.size(4)}); }

Tensor as_video(const Tensor& images, int64_t samples) {
  const Tensor video = view(images, {samples, images.size(0) / samples, images.size(1), images.size(2), images.size(3)});
  return permute(video, {0, 2, 1, 3, 4});
}

std::vector<bool> flags_in(const Config& c, const char* key, std::vector<bool> fallback) {
  const nlohmann::json* list = c.find({key});
  if (!list) return fallback;
  const bool all = list->is_array() && std::all_of(list->begin(), list->end(), [](const nlohmann::json& v) { return v.is_boolean(); });
  if (!all || list->empty())
    throw Error("[" + c.source() + "] " + key + " is " + dump(*list).substr(0, 80) + ", expected a list of true and false",
                "e.g. [false, true, true]");
  return list->get<std::vector<bool>>();
}

}  // namespace

CausalAutoencoderConfig::CausalAutoencoderConfig(const Config& c)
    : in_channels(c.size({"in_channels", "input_channels"}, 3)),
      base_dim(c.size({"base_dim"}, 96)),
      z_dim(c.size({"z_dim"}, 16)),
      num_res_blocks(c.size({"num_res_blocks"}, 2)),
      dropout(c.number({"dropout"}, 0.0)),
      dim_mult(sizes_in(c, "dim_mult", {1, 2, 4, 4})),
      temporal_downsample(flags_in(c, "temperal_downsample", {false, true, true})) {
  if (temporal_downsample.size() + 1 != dim_mult.size())
    throw Error("[" + c.source() + "] temperal_downsample has " + std::to_string(temporal_downsample.size()) + " values for " +
                    std::to_string(dim_mult.size()) + " of dim_mult",
                "one less than dim_mult has");
  if (const nlohmann::json* scales = c.find({"attn_scales"}); scales && !scales->empty())
    throw Error("[" + c.source() + "] attn_scales: attention between the blocks is not simulated", "leave it empty");
  if (c.flag({"is_residual"}, false) || c.find({"patch_size"}))
    throw Error("[" + c.source() + "] is_residual and patch_size: the autoencoder of Wan 2.2 5B is not simulated", "take that of Wan 2.1");
}

FrameCache::Slot& FrameCache::next() {
  if (at == slots.size()) slots.emplace_back();
  return slots[at++];
}

CausalConv3d::CausalConv3d(Module& parent, std::string_view name, int64_t in, int64_t out, const Dims& kernel, const Dims& padding,
                           int64_t stride)
    : Module(parent, name),
      weight(parameter("weight", {out, in, kernel[0], kernel[1], kernel[2]})),
      bias(parameter("bias", {out})),
      padding_(padding),
      stride_(stride) {}

Tensor CausalConv3d::operator()(Tensor x, const Tensor& before) const {
  Forward here(*this);
  int64_t earlier = 2 * padding_[0];
  if (before && earlier > 0) {
    x = cat({before, x}, 2);
    earlier -= before.size(2);
  }
  x = constant_pad_nd(x, {padding_[2], padding_[2], padding_[1], padding_[1], earlier, 0});
  return conv3d(x, weight, bias, {stride_, 1, 1});
}

Tensor CausalConv3d::cached(const Tensor& x, FrameCache& cache) const {
  FrameCache::Slot& slot = cache.next();
  Tensor kept = clone(frames(x, std::max<int64_t>(x.size(2) - kKeptFrames, 0), x.size(2)));
  if (kept.size(2) < kKeptFrames && slot.frames) kept = cat({last_frame(slot.frames), kept}, 2);
  Tensor out = (*this)(x, slot.frames);
  slot.frames = kept;
  return out;
}

ChannelNorm::ChannelNorm(Module& parent, std::string_view name, int64_t channels, bool images)
    : Module(parent, name), gamma(parameter("gamma", images ? Dims{channels, 1, 1} : Dims{channels, 1, 1, 1})) {}

// F.normalize(x, dim=1) * scale * gamma + 0
Tensor ChannelNorm::operator()(const Tensor& x) const {
  Forward here(*this);
  Tensor normalized;
  {
    const Tensor wide = is_half(x.dtype()) ? to(x, DType::float32) : x;
    Tensor denom = vector_norm(wide, {1});
    denom = clamp_min(denom);
    normalized = div(wide, expand(denom, wide.sizes()));
  }
  normalized = to(normalized, x.dtype());
  Tensor scaled = mul_scalar(normalized);
  scaled = mul(scaled, gamma);
  return add_scalar(scaled);
}

CausalResidualBlock::CausalResidualBlock(Module& parent, std::string_view name, int64_t in, int64_t out, double dropout)
    : Module(parent, name),
      norm1_(*this, "norm1", in, false),
      conv1_(*this, "conv1", in, out, kCube, kOnes),
      norm2_(*this, "norm2", out, false),
      dropout_(*this, "dropout", dropout),
      conv2_(*this, "conv2", out, out, kCube, kOnes),
      conv_shortcut_(in == out ? nullptr : std::make_unique<CausalConv3d>(*this, "conv_shortcut", in, out, kOnes, kNone)) {}

Tensor CausalResidualBlock::operator()(Tensor x, FrameCache& cache) const {
  Forward here(*this);
  const Tensor h = conv_shortcut_ ? (*conv_shortcut_)(x) : x;
  x = norm1_(x);
  x = silu(x);
  x = conv1_.cached(x, cache);
  x = norm2_(x);
  x = silu(x);
  x = dropout_(x);
  x = conv2_.cached(x, cache);
  return add(x, h);
}

FrameAttention::FrameAttention(Module& parent, std::string_view name, int64_t channels)
    : Module(parent, name),
      norm_(*this, "norm", channels, true),
      to_qkv_(*this, "to_qkv", channels, checked_mul(3, channels), Conv2dOptions{}),
      proj_(*this, "proj", channels, channels, Conv2dOptions{}) {}

Tensor FrameAttention::operator()(const Tensor& identity) const {
  Forward here(*this);
  const int64_t samples = identity.size(0), channels = identity.size(1), height = identity.size(3), width = identity.size(4);
  Tensor x = as_images(identity);
  x = norm_(x);
  Tensor qkv = to_qkv_(x);
  qkv = reshape(qkv, {x.size(0), 1, 3 * channels, height * width});
  qkv = contiguous(permute(qkv, {0, 1, 3, 2}));
  const Tensors parts = chunk(qkv, 3, -1);
  x = scaled_dot_product_attention(parts[0], parts[1], parts[2], {});
  x = reshape(permute(squeeze(x, 1), {0, 2, 1}), {x.size(0), channels, height, width});
  x = proj_(x);
  x = as_video(x, samples);
  return add(x, identity);
}

CausalResample::Sequence::Sequence(Module& parent, int64_t channels, ResampleMode mode)
    : Module(parent, "resample"),
      conv(*this, "1", channels, mode == ResampleMode::upsample2d || mode == ResampleMode::upsample3d ? channels / 2 : channels,
           mode == ResampleMode::upsample2d || mode == ResampleMode::upsample3d ? Conv2dOptions{.kernel = 3, .padding = 1}
                                                                                : Conv2dOptions{.kernel = 3, .stride = 2}) {}

CausalResample::CausalResample(Module& parent, std::string_view name, int64_t channels, ResampleMode mode)
    : Module(parent, name), mode_(mode), resample_(*this, channels, mode) {
  if (mode == ResampleMode::upsample3d)
    time_conv_ = std::make_unique<CausalConv3d>(*this, "time_conv", channels, checked_mul(2, channels), kTime, Dims{1, 0, 0});
  if (mode == ResampleMode::downsample3d)
    time_conv_ = std::make_unique<CausalConv3d>(*this, "time_conv", channels, channels, kTime, kNone, 2);
}

Tensor CausalResample::operator()(Tensor x, FrameCache& cache) const {
  Forward here(*this);
  const int64_t samples = x.size(0);
  if (mode_ == ResampleMode::upsample3d) x = more_frames(x, cache);
  x = as_images(x);
  {
    Forward inside(resample_);
    if (upsamples()) {
      const DType dtype = x.dtype();
      Tensor large = upsample_nearest2d(to(x, DType::float32), 2 * x.size(2), 2 * x.size(3));
      large = to(large, dtype);
      x = resample_.conv(large);
    } else {
      const Tensor padded = constant_pad_nd(x, {0, 1, 0, 1});
      x = resample_.conv(padded);
    }
  }
  x = as_video(x, samples);
  return mode_ == ResampleMode::downsample3d ? fewer_frames(x, cache) : x;
}

// The first piece has one frame and keeps it; of every other, two are made.
Tensor CausalResample::more_frames(Tensor x, FrameCache& cache) const {
  FrameCache::Slot& slot = cache.next();
  const int64_t n = x.size(0), c = x.size(1), t = x.size(2), h = x.size(3), w = x.size(4);
  if (!slot.frames && !slot.skipped) {
    slot.skipped = true;
    return x;
  }
  Tensor kept = clone(frames(x, std::max<int64_t>(t - kKeptFrames, 0), t));
  if (kept.size(2) < kKeptFrames && slot.frames) kept = cat({last_frame(slot.frames), kept}, 2);
  if (kept.size(2) < kKeptFrames && !slot.frames) kept = cat({filled(tape(), "zeros_like", kept.sizes(), kept.dtype()), kept}, 2);
  x = slot.frames ? (*time_conv_)(x, slot.frames) : (*time_conv_)(x);
  slot.frames = kept;
  x = reshape(x, {n, 2, c, t, h, w});
  x = stack({select(x, 1, 0), select(x, 1, 1)}, 3);
  return reshape(x, {n, c, 2 * t, h, w});
}

Tensor CausalResample::fewer_frames(Tensor x, FrameCache& cache) const {
  FrameCache::Slot& slot = cache.next();
  if (!slot.frames) {
    slot.frames = clone(x);
    return x;
  }
  const Tensor kept = clone(frames(x, x.size(2) - 1, x.size(2)));
  {
    const Tensor joined = cat({frames(slot.frames, slot.frames.size(2) - 1, slot.frames.size(2)), x}, 2);
    x = (*time_conv_)(joined);
  }
  slot.frames = kept;
  return x;
}

CausalMidBlock::CausalMidBlock(Module& parent, int64_t channels, double dropout)
    : Module(parent, "mid_block"), attentions_(*this, "attentions"), resnets_(*this, "resnets") {
  attentions_.add(channels);
  for (int i = 0; i < 2; ++i) resnets_.add(channels, channels, dropout);
}

Tensor CausalMidBlock::operator()(Tensor x, FrameCache& cache) {
  Forward here(*this);
  x = resnets_[0](x, cache);
  x = attentions_[0](x);
  x = resnets_[1](x, cache);
  return x;
}

CausalEncoder::Blocks::Blocks(Module& parent, const CausalAutoencoderConfig& c) : Module(parent, "down_blocks") {
  const auto name = [&] { return std::to_string(list.size()); };
  int64_t in = c.base_dim;
  for (size_t i = 0; i < c.dim_mult.size(); ++i) {
    const int64_t out = checked_mul(c.base_dim, c.dim_mult[i]);
    for (int64_t k = 0; k < c.num_res_blocks; ++k) {
      list.push_back({std::make_unique<CausalResidualBlock>(*this, name(), in, out, c.dropout), nullptr});
      in = out;
    }
    if (i + 1 == c.dim_mult.size()) continue;
    const ResampleMode mode = c.temporal_downsample[i] ? ResampleMode::downsample3d : ResampleMode::downsample2d;
    list.push_back({nullptr, std::make_unique<CausalResample>(*this, name(), out, mode)});
  }
}

CausalEncoder::CausalEncoder(Module& parent, const CausalAutoencoderConfig& c)
    : Module(parent, "encoder"),
      conv_in_(*this, "conv_in", c.in_channels, c.base_dim, kCube, kOnes),
      down_blocks_(*this, c),
      mid_block_(*this, checked_mul(c.base_dim, c.dim_mult.back()), c.dropout),
      norm_out_(*this, "norm_out", checked_mul(c.base_dim, c.dim_mult.back()), false),
      conv_out_(*this, "conv_out", checked_mul(c.base_dim, c.dim_mult.back()), checked_mul(2, c.z_dim), kCube, kOnes) {}

Tensor CausalEncoder::operator()(Tensor x, FrameCache& cache) {
  Forward here(*this);
  x = conv_in_.cached(x, cache);
  for (Blocks::Block& block : down_blocks_.list) x = block.resnet ? (*block.resnet)(x, cache) : (*block.sampler)(x, cache);
  x = mid_block_(x, cache);
  x = norm_out_(x);
  x = silu(x);
  x = conv_out_.cached(x, cache);
  return x;
}

CausalUpBlock::CausalUpBlock(Module& parent, std::string_view name, int64_t in, int64_t out, const CausalAutoencoderConfig& c,
                             std::optional<ResampleMode> mode)
    : Module(parent, name), resnets_(*this, "resnets") {
  for (int64_t k = 0; k <= c.num_res_blocks; ++k) resnets_.add(k == 0 ? in : out, out, c.dropout);
  if (!mode) return;
  upsamplers_ = std::make_unique<ModuleList<CausalResample>>(*this, "upsamplers");
  upsamplers_->add(out, *mode);
}

Tensor CausalUpBlock::operator()(Tensor x, FrameCache& cache) {
  Forward here(*this);
  for (CausalResidualBlock& resnet : resnets_) x = resnet(x, cache);
  return upsamplers_ ? (*upsamplers_)[0](x, cache) : x;
}

CausalDecoder::CausalDecoder(Module& parent, const CausalAutoencoderConfig& c)
    : Module(parent, "decoder"),
      conv_in_(*this, "conv_in", c.z_dim, checked_mul(c.base_dim, c.dim_mult.back()), kCube, kOnes),
      mid_block_(*this, checked_mul(c.base_dim, c.dim_mult.back()), c.dropout),
      up_blocks_(*this, "up_blocks"),
      norm_out_(add_blocks(c), "norm_out", checked_mul(c.base_dim, c.dim_mult.front()), false),
      conv_out_(*this, "conv_out", checked_mul(c.base_dim, c.dim_mult.front()), c.in_channels, kCube, kOnes) {}

Module& CausalDecoder::add_blocks(const CausalAutoencoderConfig& c) {
  const size_t blocks = c.dim_mult.size();
  int64_t in = c.base_dim * c.dim_mult.back();
  for (size_t i = 0; i < blocks; ++i) {
    const int64_t out = c.base_dim * c.dim_mult[blocks - 1 - i];
    std::optional<ResampleMode> mode;
    if (i + 1 < blocks) mode = c.temporal_downsample[blocks - 2 - i] ? ResampleMode::upsample3d : ResampleMode::upsample2d;
    up_blocks_.add(i > 0 ? in / 2 : in, out, c, mode);
    in = out;
  }
  return *this;
}

Tensor CausalDecoder::operator()(Tensor x, FrameCache& cache) {
  Forward here(*this);
  x = conv_in_.cached(x, cache);
  x = mid_block_(x, cache);
  for (CausalUpBlock& block : up_blocks_) x = block(x, cache);
  x = norm_out_(x);
  x = silu(x);
  x = conv_out_.cached(x, cache);
  return x;
}

CausalAutoencoder::CausalAutoencoder(Module& parent, std::string_view name, const Config& c)
    : Module(parent, name),
      config(c),
      encoder(*this, config),
      quant_conv(*this, "quant_conv", checked_mul(2, config.z_dim), checked_mul(2, config.z_dim), kOnes, kNone),
      post_quant_conv(*this, "post_quant_conv", config.z_dim, config.z_dim, kOnes, kNone),
      decoder(*this, config) {}

LatentDistribution CausalAutoencoder::encode(const Tensor& pixels) {
  Forward here(*this);
  Tensor moments;
  {
    FrameCache cache;
    Tensor out;
    Tensor piece;
    for (int64_t end = 1; end <= pixels.size(2); end += kPiece) {
      cache.at = 0;
      piece = encoder(frames(pixels, end == 1 ? 0 : end - kPiece, end), cache);
      out = out ? cat({out, piece}, 2) : piece;
      if (end == 1) piece.reset();
    }
    moments = quant_conv(out);
  }
  return LatentDistribution(moments);
}

Tensor CausalAutoencoder::decode(const Tensor& latents) {
  Forward here(*this);
  const Tensor x = post_quant_conv(latents);
  FrameCache cache;
  Tensor out, piece;
  for (int64_t i = 0; i < x.size(2); ++i) {
    cache.at = 0;
    piece = decoder(frames(x, i, i + 1), cache);
    out = out ? cat({out, piece}, 2) : piece;
    if (i == 0) piece.reset();
  }
  return clamp(out);
}

namespace {

// A training of AutoencoderKLWan or AutoencoderKLQwenImage on their own: what they give back of a video is compared with it.
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
