#include "model/diffusion/stdiff_unet.h"

#include "ops/attention.h"
#include "ops/loss.h"
#include "ops/matmul.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"
#include "ops/upsample.h"

namespace plimsoll {

namespace {

using UNetOptions = StdiffUnetOptions;
using Level = UNetOptions::Level;

struct GroupNorm : Module {
  GroupNorm(Module& parent, std::string_view name, int64_t groups, int64_t channels) : Module(parent, name), groups(groups) {
    if (channels % groups != 0)
      throw Error("[stdiff] " + std::to_string(groups) + " groups do not divide " + std::to_string(channels) + " channels",
                  "choose block_out_channels that are multiples of norm_num_groups");
    weight = parameter("weight", {channels});
    bias = parameter("bias", {channels});
  }
  Tensor operator()(const Tensor& x) const {
    Forward here(*this);
    return group_norm(x, groups, weight, bias);
  }
  int64_t groups;
  Tensor weight, bias;
};

constexpr Conv2dOptions kUNet3x3{.kernel = 3, .padding = 1};

// get_timestep_embedding of diffusers: sines and cosines of each timestep.
Tensor stdiff_timestep_embedding(const Tensor& timesteps, int64_t channels) {
  Tape& tape = timesteps.tape();
  const int64_t half = channels / 2;
  Tensor exponent = arange(tape, half, DType::float32);
  exponent = mul_scalar(exponent);
  exponent = div_scalar(exponent);  // (half)
  Tensor emb = exp(exponent);
  {
    const Tensor steps = to(unsqueeze(timesteps, 1), DType::float32);
    emb = mul(steps, unsqueeze(emb, 0));  // (B, half)
  }
  emb = mul_scalar(emb);
  {
    const Tensor sines = sin(emb), cosines = cos(emb);
    emb = cat({sines, cosines}, -1);  // (B, channels)
  }
  return cat({slice(emb, 1, half, 2 * half), slice(emb, 1, 0, half)}, -1);  // flip_sin_to_cos
}

struct TimestepEmbedding : Module {
  TimestepEmbedding(Module& parent, std::string_view name, int64_t channels, int64_t width)
      : Module(parent, name), linear_1(*this, "linear_1", channels, width), linear_2(*this, "linear_2", width, width) {}
  Tensor operator()(const Tensor& t_emb) const {
    Forward here(*this);
    Tensor sample = linear_1(t_emb);
    sample = silu(sample);
    return linear_2(sample);
  }
  Linear linear_1, linear_2;
};

// Normalises x and shifts and scales every pixel of it by the motion features there (SPADE).
struct MotionCondModule : Module {
  MotionCondModule(Module& parent, std::string_view name, int64_t motion, int64_t out)
      : Module(parent, name),
        mlp_gamma(*this, "mlp_gamma", (motion + out) / 2, out, kUNet3x3),
        mlp_beta(*this, "mlp_beta", (motion + out) / 2, out, kUNet3x3) {
    mlp_shared.add<Conv2d>(motion, (motion + out) / 2, kUNet3x3);
    mlp_shared.add<Activation>(Act::relu, false);
  }
  Tensor operator()(const Tensor& x, const Tensor& m_feat) const {
    Forward here(*this);
    const Tensor normalized = instance_norm(x);                                   // (B, C, H, W)
    const Tensor motion_feat = upsample_nearest2d(m_feat, x.size(2), x.size(3));  // (B, M, H, W)
    const Tensor actv = mlp_shared(motion_feat);                                  // (B, (M + C) / 2, H, W)
    const Tensor gamma = mlp_gamma(actv);
    const Tensor beta = mlp_beta(actv);
    Tensor out = add_scalar(gamma);
    out = mul(normalized, out);
    return add(out, beta);  // (B, C, H, W)
  }
  Sequential mlp_shared{*this, "mlp_shared"};
  Conv2d mlp_gamma, mlp_beta;
};

struct ResnetBlock2D : Module {
  ResnetBlock2D(Module& parent, std::string_view name, int64_t in, int64_t out, int64_t temb, const UNetOptions& o)
      : Module(parent, name),
        motion_cond_layer(*this, "motion_cond_layer", o.motion_channels, out),
        norm1(*this, "norm1", o.norm_num_groups, in),
        conv1(*this, "conv1", in, out, kUNet3x3),
        time_emb_proj(*this, "time_emb_proj", temb, out),
        norm2(*this, "norm2", o.norm_num_groups, out),
        conv2(*this, "conv2", out, out, kUNet3x3) {
    if (in != out) conv_shortcut.emplace(*this, "conv_shortcut", in, out, Conv2dOptions{});
  }

  Tensor operator()(const Tensor& x, const Tensor& emb, const Tensor& m_feat) const {
    Forward here(*this);
    Tensor input_tensor = x;
    Tensor hidden = norm1(input_tensor);
    hidden = silu(hidden);
    hidden = conv1(hidden);  // (B, out, H, W)
    hidden = motion_cond_layer(hidden, m_feat);
    Tensor temb = silu(emb);
    temb = time_emb_proj(temb);
    temb = unsqueeze(unsqueeze(temb, 2), 3);  // (B, out, 1, 1)
    hidden = add(hidden, temb);
    hidden = norm2(hidden);
    hidden = silu(hidden);
    hidden = conv2(hidden);
    if (conv_shortcut) input_tensor = (*conv_shortcut)(input_tensor);
    return div_scalar(add(input_tensor, hidden));
  }

  MotionCondModule motion_cond_layer;
  GroupNorm norm1;
  Conv2d conv1;
  Linear time_emb_proj;
  GroupNorm norm2;
  Conv2d conv2;
  std::optional<Conv2d> conv_shortcut;
};

struct AttentionBlock : Module {
  AttentionBlock(Module& parent, std::string_view name, int64_t channels, int64_t head_dim, const UNetOptions& o)
      : Module(parent, name),
        heads(head_dim > 0 ? channels / head_dim : 1),
        xformers(o.xformers),
        norm(*this, "group_norm", o.norm_num_groups, channels),
        query(*this, "query", channels, channels),
        key(*this, "key", channels, channels),
        value(*this, "value", channels, channels),
        proj_attn(*this, "proj_attn", channels, channels) {
    if (heads == 0 || channels % heads != 0)
      throw Error("[stdiff] attention_head_dim " + std::to_string(head_dim) + " does not divide " + std::to_string(channels) + " channels",
                  "choose one that divides the level's block_out_channels");
  }

  Tensor operator()(const Tensor& x) const {
    Forward here(*this);
    const int64_t b = x.size(0), c = x.size(1), h = x.size(2), w = x.size(3);
    Tensor hidden = norm(x);
    hidden = transpose(view(hidden, {b, c, h * w}), 1, 2);  // (B, T, C)
    Tensor q = query(hidden);
    Tensor k = key(hidden);
    Tensor v = value(hidden);
    q = heads_to_batch(q);  // (B * heads, T, head_dim)
    k = heads_to_batch(k);
    v = heads_to_batch(v);
    Tensor scores, probs;  // Python keeps them until it returns
    if (xformers) {
      hidden = memory_efficient_attention(q, k, v);
    } else {
      scores = materialised_scores(q, k);  // (B * heads, T, T)
      probs = softmax(to(scores, DType::float32));
      probs = to(probs, scores.dtype());
      hidden = bmm(probs, v);
    }
    hidden = batch_to_heads(hidden);  // (B, T, C)
    hidden = proj_attn(hidden);
    hidden = reshape(transpose(hidden, -1, -2), {b, c, h, w});
    return div_scalar(add(hidden, x));
  }

  int64_t heads;
  bool xformers;
  GroupNorm norm;
  Linear query, key, value, proj_attn;

 private:
  Tensor heads_to_batch(const Tensor& t) const {
    const int64_t b = t.size(0), n = t.size(1), d = t.size(2);
    return reshape(permute(reshape(t, {b, n, heads, d / heads}), {0, 2, 1, 3}), {b * heads, n, d / heads});
  }
  Tensor batch_to_heads(const Tensor& t) const {
    const int64_t b = t.size(0), n = t.size(1), d = t.size(2);
    return reshape(permute(reshape(t, {b / heads, heads, n, d}), {0, 2, 1, 3}), {b / heads, n, d * heads});
  }
  Tensor materialised_scores(const Tensor& q, const Tensor& k) const {
    const Tensor start = filled(q.tape(), "empty", {q.size(0), q.size(1), k.size(1)}, q.dtype());
    return baddbmm(start, q, transpose(k, -1, -2));
  }
};

// Residual blocks, each perhaps with an attention after it. Only blocks without attention know gradient checkpointing: torch's
// checkpoint around each residual block, in its reentrant form.
struct UNetLayers : Module {
  UNetLayers(Module& parent, std::string_view name) : Module(parent, name) {}

  Tensor run_layer(size_t i, Tensor hidden, const Tensor& temb, const Tensor& m_feat) {
    ResnetBlock2D& resnet = resnets[i];
    if (attentions.size() > 0) {
      hidden = resnet(hidden, temb, m_feat);
      return attentions[i](hidden);
    }
    const WorkBlock noted = note_block(resnet);
    if (!checkpoints(resnet, true)) return noted.returns(resnet(hidden, temb, m_feat));
    static const CheckpointStyle kReentrant{.reentrant = true, .saved_ops = {}};
    const auto run = [&resnet](const Tensors& in) -> Tensors { return {resnet(in[0], in[1], in[2])}; };
    return noted.returns(checkpoint(tape(), kReentrant, run, Tensors{hidden, temb, m_feat})[0]);
  }

  ModuleList<AttentionBlock> attentions{*this, "attentions"};
  ModuleList<ResnetBlock2D> resnets{*this, "resnets"};
};

// DownBlock2D and AttnDownBlock2D.
struct StdiffDownBlock : UNetLayers {
  StdiffDownBlock(Module& parent, std::string_view name, int64_t in, const Level& level, bool downsample, int64_t temb,
                  const UNetOptions& o)
      : UNetLayers(parent, name) {
    for (int64_t i = 0; i < o.layers_per_block; ++i) {
      resnets.add(i == 0 ? in : level.channels, level.channels, temb, o);
      if (level.down_attention) attentions.add(level.channels, level.head_dim, o);
    }
    if (downsample) downsampler.emplace(*this, "downsamplers.0.conv", level.channels, level.channels, kStride2);
  }
  // Appends what the way up will meet again.
  Tensor operator()(Tensor hidden, const Tensor& temb, const Tensor& m_feat, Tensors& skips) {
    Forward here(*this);
    for (size_t i = 0; i < resnets.size(); ++i) skips.push_back(hidden = run_layer(i, std::move(hidden), temb, m_feat));
    if (downsampler) skips.push_back(hidden = (*downsampler)(hidden));
    return hidden;
  }
  static constexpr Conv2dOptions kStride2{.kernel = 3, .stride = 2, .padding = 1};
  std::optional<Conv2d> downsampler;
};

struct Upsample2D : Module {
  Upsample2D(Module& parent, std::string_view name, int64_t channels)
      : Module(parent, name), conv(*this, "conv", channels, channels, kUNet3x3) {}
  Tensor operator()(const Tensor& x) const {
    Forward here(*this);
    Tensor hidden = x;
    if (x.dtype() == DType::bfloat16) hidden = to(hidden, DType::float32);  // written when there was no bf16 kernel
    if (hidden.size(0) >= 64) hidden = contiguous(hidden);
    hidden = upsample_nearest2d(hidden, 2 * hidden.size(2), 2 * hidden.size(3));
    if (x.dtype() == DType::bfloat16) hidden = to(hidden, x.dtype());
    return conv(hidden);
  }
  Conv2d conv;
};

// UpBlock2D and AttnUpBlock2D.
struct StdiffUpBlock : UNetLayers {
  // in: channels of the level above, whose last skip is met here; previous: of what comes from below
  StdiffUpBlock(Module& parent, std::string_view name, int64_t in, int64_t previous, const Level& level, bool upsample, int64_t temb,
                const UNetOptions& o)
      : UNetLayers(parent, name) {
    const int64_t layers = o.layers_per_block + 1;
    for (int64_t i = 0; i < layers; ++i) {
      const int64_t skip = i == layers - 1 ? in : level.channels, before = i == 0 ? previous : level.channels;
      resnets.add(before + skip, level.channels, temb, o);
      if (level.up_attention) attentions.add(level.channels, level.head_dim, o);
    }
    if (upsample) upsampler.emplace(*this, "upsamplers.0", level.channels);
  }
  Tensor operator()(Tensor hidden, const Tensors& skips, const Tensor& temb, const Tensor& m_feat) {
    Forward here(*this);
    for (size_t i = 0; i < resnets.size(); ++i) {
      hidden = cat({hidden, skips[skips.size() - 1 - i]}, 1);
      hidden = run_layer(i, std::move(hidden), temb, m_feat);
    }
    if (upsampler) hidden = (*upsampler)(hidden);
    return hidden;
  }
  std::optional<Upsample2D> upsampler;
};

struct UNetMidBlock2D : Module {
  UNetMidBlock2D(Module& parent, std::string_view name, const Level& level, int64_t temb, const UNetOptions& o) : Module(parent, name) {
    attentions.add(level.channels, level.head_dim, o);
    for (int i = 0; i < 2; ++i) resnets.add(level.channels, level.channels, temb, o);
  }
  Tensor operator()(Tensor hidden, const Tensor& temb, const Tensor& m_feat) {
    Forward here(*this);
    hidden = resnets[0](hidden, temb, m_feat);
    hidden = attentions[0](hidden);
    return resnets[1](hidden, temb, m_feat);
  }
  ModuleList<AttentionBlock> attentions{*this, "attentions"};
  ModuleList<ResnetBlock2D> resnets{*this, "resnets"};
};

}  // namespace

// In the order in which Python registers them: mid_block, first set to None, comes after up_blocks.
struct UNet2DMotionCond::Parts {
  Parts(Module& net, const UNetOptions& o)
      : width(o.levels.front().channels),
        conv_in(net, "conv_in", o.in_channels, width, kUNet3x3),
        time_embedding(net, "time_embedding", width, 4 * width),
        down_blocks(net, "down_blocks"),
        up_blocks(net, "up_blocks"),
        mid_block(net, "mid_block", o.levels.back(), 4 * width, o),
        conv_norm_out(net, "conv_norm_out", o.norm_num_groups, width),
        conv_out(net, "conv_out", width, o.out_channels, kUNet3x3) {
    const size_t n = o.levels.size();
    for (size_t i = 0; i < n; ++i) down_blocks.add(o.levels[i == 0 ? 0 : i - 1].channels, o.levels[i], i + 1 < n, 4 * width, o);
    for (size_t i = n; i-- > 0;)
      up_blocks.add(o.levels[i == 0 ? 0 : i - 1].channels, o.levels[i + 1 < n ? i + 1 : i].channels, o.levels[i], i > 0, 4 * width, o);
  }

  int64_t width;
  Conv2d conv_in;
  TimestepEmbedding time_embedding;
  ModuleList<StdiffDownBlock> down_blocks;
  ModuleList<StdiffUpBlock> up_blocks;
  UNetMidBlock2D mid_block;
  GroupNorm conv_norm_out;
  Conv2d conv_out;
};

UNet2DMotionCond::UNet2DMotionCond(Module& parent, std::string_view name, const UNetOptions& options)
    : Module(parent, name), parts_(std::make_unique<Parts>(*this, options)) {}

UNet2DMotionCond::~UNet2DMotionCond() = default;

Tensor UNet2DMotionCond::operator()(const Tensor& input, const Tensor& timestep, const Tensor& m_feat) {
  Forward here(*this);
  Parts& p = *parts_;
  Tensor timesteps = filled(tape(), "ones", {input.size(0)}, timestep.dtype());
  timesteps = mul(timestep, timesteps);
  const Tensor t_emb = to(stdiff_timestep_embedding(timesteps, p.width), build().dtype);
  const Tensor emb = p.time_embedding(t_emb);  // (B, 4 * width)

  Tensor sample = p.conv_in(input);
  Tensors skips{sample};
  for (StdiffDownBlock& block : p.down_blocks) sample = block(sample, emb, m_feat, skips);
  sample = p.mid_block(sample, emb, m_feat);

  Tensors res_samples;  // the last ones stay until the end
  for (StdiffUpBlock& block : p.up_blocks) {
    const auto first = skips.end() - static_cast<std::ptrdiff_t>(block.resnets.size());
    res_samples.assign(first, skips.end());
    skips.erase(first, skips.end());
    sample = block(sample, res_samples, emb, m_feat);
  }
  sample = p.conv_norm_out(sample);
  sample = silu(sample);
  return p.conv_out(sample);  // (B, out_channels, H, W)
}

}  // namespace plimsoll
