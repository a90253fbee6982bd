// diffusers 0.40 models/autoencoders/autoencoder_kl.py: images to latents and back.
#pragma once

#include "nn/unet_blocks.h"

namespace plimsoll {

struct AutoencoderConfig {
  explicit AutoencoderConfig(const Config& c);
  int64_t in_channels, out_channels, latent_channels, layers_per_block;
  std::vector<int64_t> block_out_channels;
  ResnetSettings resnet;  // but for its channels
  bool use_quant_conv, use_post_quant_conv, mid_block_add_attention, xformers;
  int64_t scale() const { return int64_t{1} << (block_out_channels.size() - 1); }  // pixels per latent
};

// DiagonalGaussianDistribution: what encoding gives, and everything it keeps.
struct LatentDistribution {
  explicit LatentDistribution(const Tensor& parameters);
  Tensor sample() const;  // (N, latent_channels, h, w)
  Tensor kl() const;      // (N)
  Tensor parameters, mean, logvar, std, var;
};

// The encoder's and the decoder's blocks: residual blocks and a sampler.
struct AutoencoderBlock : Module {
  AutoencoderBlock(Module& parent, std::string_view name, const AutoencoderConfig& c, int64_t in, int64_t out, int64_t layers);
  Tensor run_resnets(const Tensor& x);
  ModuleList<ResnetBlock2D> resnets;
};

struct DownEncoderBlock2D : AutoencoderBlock {
  DownEncoderBlock2D(Module& parent, std::string_view name, const AutoencoderConfig& c, int64_t in, int64_t out, bool downsample);
  Tensor operator()(const Tensor& x);
  std::unique_ptr<ModuleList<Downsample2D>> downsamplers;
};

struct UpDecoderBlock2D : AutoencoderBlock {
  UpDecoderBlock2D(Module& parent, std::string_view name, const AutoencoderConfig& c, int64_t in, int64_t out, bool upsample);
  Tensor operator()(const Tensor& x);
  std::unique_ptr<ModuleList<Upsample2D>> upsamplers;
};

struct UNetMidBlock2D : Module {
  UNetMidBlock2D(Module& parent, std::string_view name, const AutoencoderConfig& c);
  Tensor operator()(const Tensor& x);
  ModuleList<ImageAttention> attentions;
  ModuleList<ResnetBlock2D> resnets;
};

struct AutoencoderEncoder : Module {
  AutoencoderEncoder(Module& parent, std::string_view name, const AutoencoderConfig& c);
  Tensor operator()(const Tensor& pixels);  // (N, 2 latent_channels, h, w)
  const AutoencoderConfig& config;
  Conv2d conv_in;
  ModuleList<DownEncoderBlock2D> down_blocks;
  UNetMidBlock2D mid_block;
  GroupNorm conv_norm_out;
  Conv2d conv_out;

 private:
  Module& add_blocks();
};

struct AutoencoderDecoder : Module {
  AutoencoderDecoder(Module& parent, std::string_view name, const AutoencoderConfig& c);
  Tensor operator()(const Tensor& latents);  // (N, out_channels, H, W)
  const AutoencoderConfig& config;
  Conv2d conv_in;
  ModuleList<UpDecoderBlock2D> up_blocks;
  UNetMidBlock2D mid_block;
  GroupNorm conv_norm_out;
  Conv2d conv_out;

 private:
  Module& add_blocks();
};

struct AutoencoderKL : Module {
  AutoencoderKL(Module& parent, std::string_view name, const Config& c);
  LatentDistribution encode(const Tensor& pixels);
  Tensor decode(const Tensor& latents);
  AutoencoderConfig config;
  AutoencoderEncoder encoder;
  AutoencoderDecoder decoder;
  std::unique_ptr<Conv2d> quant_conv, post_quant_conv;
};

}  // namespace plimsoll
