// diffusers 0.40 models/autoencoders: AutoencoderKLWan (of Wan 2.1) and AutoencoderKLQwenImage, which are one network under two names.
// Videos go through it in pieces, one frame first and then four at a time; every convolution over time keeps the last frames that it saw.
#pragma once

#include "job/config.h"
#include "nn/autoencoder_kl.h"

namespace plimsoll {

struct CausalAutoencoderConfig {
  explicit CausalAutoencoderConfig(const Config& c);
  int64_t in_channels, base_dim, z_dim, num_res_blocks;
  double dropout;
  std::vector<int64_t> dim_mult;
  std::vector<bool> temporal_downsample;
  int64_t scale() const { return int64_t{1} << temporal_downsample.size(); }  // pixels per latent
};

// feat_cache and feat_idx: what the convolutions keep, in the order in which they are called.
struct FrameCache {
  struct Slot {
    Tensor frames;
    bool skipped = false;  // "Rep": the first piece went past this convolution
  };
  Slot& next();
  std::vector<Slot> slots;
  size_t at = 0;
};

// Conv3d that sees no later frames.
struct CausalConv3d : Module {
  CausalConv3d(Module& parent, std::string_view name, int64_t in, int64_t out, const Dims& kernel, const Dims& padding, int64_t stride = 1);
  Tensor operator()(Tensor x, const Tensor& before = {}) const;  // (N, C, F, H, W)
  Tensor cached(const Tensor& x, FrameCache& cache) const;       // with the frames before, and keeps the last two
  Tensor weight, bias;

 private:
  Dims padding_;
  int64_t stride_;  // over time
};

// RMS_norm over the channels, written out. Images (N, C, H, W) or videos.
struct ChannelNorm : Module {
  ChannelNorm(Module& parent, std::string_view name, int64_t channels, bool images);
  Tensor operator()(const Tensor& x) const;
  Tensor gamma;
};

struct CausalResidualBlock : Module {
  CausalResidualBlock(Module& parent, std::string_view name, int64_t in, int64_t out, double dropout);
  Tensor operator()(Tensor x, FrameCache& cache) const;

 private:
  ChannelNorm norm1_;
  CausalConv3d conv1_;
  ChannelNorm norm2_;
  Dropout dropout_;
  CausalConv3d conv2_;
  std::unique_ptr<CausalConv3d> conv_shortcut_;
};

// One head, frame by frame.
struct FrameAttention : Module {
  FrameAttention(Module& parent, std::string_view name, int64_t channels);
  Tensor operator()(const Tensor& x) const;

 private:
  ChannelNorm norm_;
  Conv2d to_qkv_, proj_;
};

enum class ResampleMode : uint8_t { upsample2d, upsample3d, downsample2d, downsample3d };

struct CausalResample : Module {
  CausalResample(Module& parent, std::string_view name, int64_t channels, ResampleMode mode);
  Tensor operator()(Tensor x, FrameCache& cache) const;

 private:
  struct Sequence : Module {
    Sequence(Module& parent, int64_t channels, ResampleMode mode);
    Conv2d conv;
  };
  Tensor more_frames(Tensor x, FrameCache& cache) const;
  Tensor fewer_frames(Tensor x, FrameCache& cache) const;
  bool upsamples() const { return mode_ == ResampleMode::upsample2d || mode_ == ResampleMode::upsample3d; }
  ResampleMode mode_;
  Sequence resample_;
  std::unique_ptr<CausalConv3d> time_conv_;
};

struct CausalMidBlock : Module {
  CausalMidBlock(Module& parent, int64_t channels, double dropout);
  Tensor operator()(Tensor x, FrameCache& cache);

 private:
  ModuleList<FrameAttention> attentions_;
  ModuleList<CausalResidualBlock> resnets_;
};

class CausalEncoder : public Module {
 public:
  CausalEncoder(Module& parent, const CausalAutoencoderConfig& c);
  Tensor operator()(Tensor x, FrameCache& cache);

 private:
  // down_blocks is a list of both kinds.
  struct Blocks : Module {
    Blocks(Module& parent, const CausalAutoencoderConfig& c);
    struct Block {
      std::unique_ptr<CausalResidualBlock> resnet;
      std::unique_ptr<CausalResample> sampler;
    };
    std::vector<Block> list;
  };
  CausalConv3d conv_in_;
  Blocks down_blocks_;
  CausalMidBlock mid_block_;
  ChannelNorm norm_out_;
  CausalConv3d conv_out_;
};

struct CausalUpBlock : Module {
  CausalUpBlock(Module& parent, std::string_view name, int64_t in, int64_t out, const CausalAutoencoderConfig& c,
                std::optional<ResampleMode> mode);
  Tensor operator()(Tensor x, FrameCache& cache);

 private:
  ModuleList<CausalResidualBlock> resnets_;
  std::unique_ptr<ModuleList<CausalResample>> upsamplers_;
};

class CausalDecoder : public Module {
 public:
  CausalDecoder(Module& parent, const CausalAutoencoderConfig& c);
  Tensor operator()(Tensor x, FrameCache& cache);

 private:
  Module& add_blocks(const CausalAutoencoderConfig& c);
  CausalConv3d conv_in_;
  CausalMidBlock mid_block_;
  ModuleList<CausalUpBlock> up_blocks_;
  ChannelNorm norm_out_;
  CausalConv3d conv_out_;
};

struct CausalAutoencoder : Module {
  CausalAutoencoder(Module& parent, std::string_view name, const Config& c);
  LatentDistribution encode(const Tensor& pixels);  // (N, C, F, H, W)
  Tensor decode(const Tensor& latents);             // (N, z, f, h, w)
  CausalAutoencoderConfig config;
  CausalEncoder encoder;
  CausalConv3d quant_conv, post_quant_conv;
  CausalDecoder decoder;
};

}  // namespace plimsoll
