#include "nn/autoencoder_kl.h"

#include "job/config_list.h"
#include "nn/transformer.h"
#include "ops/pointwise.h"
#include "ops/reduce.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

constexpr Conv2dOptions kSameSize{.kernel = 3, .padding = 1};

void require_all(const Config& c, const char* key, const char* known, size_t count) {
  const std::vector<std::string> names = name_list(c, key, std::vector<std::string>(count, known));
  for (const std::string& name : names)
    if (name != known) throw Error("[" + c.source() + "] " + key + " '" + name + "' is not modelled", std::string("there is ") + known);
  if (names.size() != count)
    throw Error(
        "[" + c.source() + "] " + std::to_string(names.size()) + " " + key + " for " + std::to_string(count) + " block_out_channels",
        "give as many of each");
}

ResnetSettings resnet_settings(const AutoencoderConfig& c, int64_t in, int64_t out) {
  ResnetSettings r = c.resnet;
  r.in = in;
  r.out = out;
  return r;
}

}  // namespace

AutoencoderConfig::AutoencoderConfig(const Config& c)
    : in_channels(c.size({"in_channels"}, 3)),
      out_channels(c.size({"out_channels"}, 3)),
      latent_channels(c.size({"latent_channels"}, 4)),
      layers_per_block(c.size({"layers_per_block"}, 1)),
      block_out_channels(size_list(c, "block_out_channels", {64})),
      use_quant_conv(c.flag({"use_quant_conv"}, true)),
      use_post_quant_conv(c.flag({"use_post_quant_conv"}, true)),
      mid_block_add_attention(c.flag({"mid_block_add_attention"}, true)),
      xformers(uses_xformers(c)) {
  resnet.groups = c.size({"norm_num_groups"}, 32);
  resnet.act = c.text({"act_fn"}, "silu");
  require_all(c, "down_block_types", "DownEncoderBlock2D", block_out_channels.size());
  require_all(c, "up_block_types", "UpDecoderBlock2D", block_out_channels.size());
}

LatentDistribution::LatentDistribution(const Tensor& moments) : parameters(moments) {
  const Tensors halves = chunk(moments, 2, 1);
  mean = halves[0];
  logvar = clamp(halves[1]);
  {
    const Tensor half = mul_scalar(logvar);
    std = exp(half);
  }
  var = exp(logvar);
}

Tensor LatentDistribution::sample() const {
  const Tensor noise = filled(mean.tape(), "randn", mean.sizes(), parameters.dtype());
  const Tensor spread = mul(std, noise);
  return add(mean, spread);
}

Tensor LatentDistribution::kl() const {
  Tensor each = pow(mean, 2);
  each = add(each, var);
  each = sub_scalar(each);
  each = sub(each, logvar);
  each = sum(each, {1, 2, 3}, false);
  return mul_scalar(each);
}

AutoencoderBlock::AutoencoderBlock(Module& parent, std::string_view name, const AutoencoderConfig& c, int64_t in, int64_t out,
                                   int64_t layers)
    : Module(parent, name), resnets(*this, "resnets") {
  for (int64_t i = 0; i < layers; ++i) resnets.add(resnet_settings(c, i == 0 ? in : out, out));
}

Tensor AutoencoderBlock::run_resnets(const Tensor& x) {
  Tensor hidden = x;
  for (ResnetBlock2D& resnet : resnets) hidden = resnet(hidden, {});
  return hidden;
}

DownEncoderBlock2D::DownEncoderBlock2D(Module& parent, std::string_view name, const AutoencoderConfig& c, int64_t in, int64_t out,
                                       bool downsample)
    : AutoencoderBlock(parent, name, c, in, out, c.layers_per_block) {
  if (!downsample) return;
  downsamplers = std::make_unique<ModuleList<Downsample2D>>(*this, "downsamplers");
  downsamplers->add(out, 0);
}

Tensor DownEncoderBlock2D::operator()(const Tensor& x) {
  Forward here(*this);
  Tensor hidden = run_resnets(x);  // (N, out, H, W)
  if (downsamplers) hidden = (*downsamplers)[0](hidden);
  return hidden;
}

UpDecoderBlock2D::UpDecoderBlock2D(Module& parent, std::string_view name, const AutoencoderConfig& c, int64_t in, int64_t out,
                                   bool upsample)
    : AutoencoderBlock(parent, name, c, in, out, c.layers_per_block + 1) {
  if (!upsample) return;
  upsamplers = std::make_unique<ModuleList<Upsample2D>>(*this, "upsamplers");
  upsamplers->add(out);
}

Tensor UpDecoderBlock2D::operator()(const Tensor& x) {
  Forward here(*this);
  Tensor hidden = run_resnets(x);  // (N, out, H, W)
  if (upsamplers) hidden = (*upsamplers)[0](hidden, 2 * hidden.size(2), 2 * hidden.size(3));
  return hidden;
}

UNetMidBlock2D::UNetMidBlock2D(Module& parent, std::string_view name, const AutoencoderConfig& c)
    : Module(parent, name), attentions(*this, "attentions"), resnets(*this, "resnets") {
  const int64_t channels = c.block_out_channels.back();
  AttentionSettings a;
  a.query_dim = a.dim_head = channels;
  a.bias = a.residual_connection = a.upcast_softmax = true;
  a.norm_num_groups = c.resnet.groups;
  a.xformers = c.xformers;
  if (c.mid_block_add_attention) attentions.add(a);
  for (int i = 0; i < 2; ++i) resnets.add(resnet_settings(c, channels, channels));
}

Tensor UNetMidBlock2D::operator()(const Tensor& x) {
  Forward here(*this);
  Tensor hidden = resnets[0](x, {});  // (N, C, h, w)
  if (attentions.size() > 0) hidden = attentions[0](hidden);
  hidden = resnets[1](hidden, {});
  return hidden;
}

AutoencoderEncoder::AutoencoderEncoder(Module& parent, std::string_view name, const AutoencoderConfig& c)
    : Module(parent, name),
      config(c),
      conv_in(*this, "conv_in", c.in_channels, c.block_out_channels[0], kSameSize),
      down_blocks(*this, "down_blocks"),
      mid_block(add_blocks(), "mid_block", c),
      conv_norm_out(*this, "conv_norm_out", c.resnet.groups, c.block_out_channels.back()),
      conv_out(*this, "conv_out", c.block_out_channels.back(), 2 * c.latent_channels, kSameSize) {}

Module& AutoencoderEncoder::add_blocks() {
  const std::vector<int64_t>& channels = config.block_out_channels;
  for (size_t i = 0; i < channels.size(); ++i) down_blocks.add(config, channels[i == 0 ? 0 : i - 1], channels[i], i + 1 < channels.size());
  return *this;
}

Tensor AutoencoderEncoder::operator()(const Tensor& pixels) {
  Forward here(*this);
  Tensor sample = conv_in(pixels);  // (N, C, H, W)
  for (DownEncoderBlock2D& block : down_blocks) sample = block(sample);
  sample = mid_block(sample);
  sample = conv_norm_out(sample);
  sample = silu(sample);
  return conv_out(sample);
}

AutoencoderDecoder::AutoencoderDecoder(Module& parent, std::string_view name, const AutoencoderConfig& c)
    : Module(parent, name),
      config(c),
      conv_in(*this, "conv_in", c.latent_channels, c.block_out_channels.back(), kSameSize),
      up_blocks(*this, "up_blocks"),
      mid_block(add_blocks(), "mid_block", c),
      conv_norm_out(*this, "conv_norm_out", c.resnet.groups, c.block_out_channels[0]),
      conv_out(*this, "conv_out", c.block_out_channels[0], c.out_channels, kSameSize) {}

Module& AutoencoderDecoder::add_blocks() {
  const std::vector<int64_t>& channels = config.block_out_channels;
  for (size_t i = channels.size(); i-- > 0;) up_blocks.add(config, channels[std::min(i + 1, channels.size() - 1)], channels[i], i > 0);
  return *this;
}

Tensor AutoencoderDecoder::operator()(const Tensor& latents) {
  Forward here(*this);
  Tensor sample = conv_in(latents);  // (N, C, h, w)
  sample = mid_block(sample);
  for (UpDecoderBlock2D& block : up_blocks) sample = block(sample);
  sample = conv_norm_out(sample);
  sample = silu(sample);
  return conv_out(sample);
}

AutoencoderKL::AutoencoderKL(Module& parent, std::string_view name, const Config& c)
    : Module(parent, name),
      config(c),
      encoder(*this, "encoder", config),
      decoder(*this, "decoder", config),
      quant_conv(config.use_quant_conv ? std::make_unique<Conv2d>(*this, "quant_conv", 2 * config.latent_channels,
                                                                  2 * config.latent_channels, Conv2dOptions{})
                                       : nullptr),
      post_quant_conv(config.use_post_quant_conv ? std::make_unique<Conv2d>(*this, "post_quant_conv", config.latent_channels,
                                                                            config.latent_channels, Conv2dOptions{})
                                                 : nullptr) {}

LatentDistribution AutoencoderKL::encode(const Tensor& pixels) {
  Tensor moments = encoder(pixels);  // (N, 2 latent_channels, h, w)
  if (quant_conv) moments = (*quant_conv)(moments);
  return LatentDistribution(moments);
}

Tensor AutoencoderKL::decode(const Tensor& latents) {
  Tensor z = latents;
  if (post_quant_conv) z = (*post_quant_conv)(z);
  return decoder(z);
}

}  // namespace plimsoll
