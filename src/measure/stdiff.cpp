// STDiff (stochastic video prediction by diffusion): motion features of observed frames are integrated into the future, and a U-Net that
// denoises all predicted frames at once is conditioned on them. Locals are those of src/model/stdiff*.cpp.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "measure/live_model.h"
#include "measure/stdiff_motion.h"
#include "measure/timestep_embedding.h"

namespace plimsoll::measure {

namespace {

struct MotionCondModule : Unit {
  MotionCondModule(const Unit& parent, std::string_view name, int64_t motion, int64_t out)
      : Unit(parent, name),
        mlp_shared(*this, "mlp_shared.0", motion, (motion + out) / 2, 3, 1, 1),
        mlp_gamma(*this, "mlp_gamma", (motion + out) / 2, out, 3, 1, 1),
        mlp_beta(*this, "mlp_beta", (motion + out) / 2, out, 3, 1, 1) {}
  Tensor operator()(const Tensor& x, const Tensor& m_feat) const {
    const Within here(place);
    const Tensor normalized = torch::instance_norm(x, {}, {}, {}, {}, true, 0.1, 1e-5, false);   // (B, C, H, W)
    const Tensor motion_feat = torch::upsample_nearest2d(wide(m_feat), {x.size(2), x.size(3)});  // (B, M, H, W)
    const Tensor actv = torch::relu(mlp_shared(motion_feat));                                    // (B, (M + C) / 2, H, W)
    const Tensor gamma = mlp_gamma(actv);
    const Tensor beta = mlp_beta(actv);
    Tensor out = gamma + 1.0;
    out = normalized * out;
    return out + beta;  // (B, C, H, W)
  }
  Conv2d mlp_shared, mlp_gamma, mlp_beta;
};

struct ResnetBlock2D : Unit {
  ResnetBlock2D(const Unit& parent, std::string_view name, int64_t in, int64_t out, int64_t temb, const StdiffSettings& c)
      : Unit(parent, name),
        motion_cond_layer(*this, "motion_cond_layer", c.motion_channels(), out),
        norm1(*this, "norm1", c.groups, in),
        conv1(*this, "conv1", in, out, 3, 1, 1),
        time_emb_proj(*this, "time_emb_proj", temb, out),
        norm2(*this, "norm2", c.groups, out),
        conv2(*this, "conv2", out, out, 3, 1, 1),
        conv_shortcut(in != out ? std::make_unique<Conv2d>(*this, "conv_shortcut", in, out, 1) : nullptr) {}

  Tensor operator()(const Tensor& x, const Tensor& emb, const Tensor& m_feat) const {
    const Within here(place);
    Tensor input_tensor = x;
    Tensor hidden = norm1(input_tensor);
    hidden = torch::silu(hidden);
    hidden = conv1(hidden);  // (B, out, H, W)
    hidden = motion_cond_layer(hidden, m_feat);
    Tensor temb = torch::silu(emb);
    temb = time_emb_proj(temb);
    temb = temb.unsqueeze(2).unsqueeze(3);  // (B, out, 1, 1)
    hidden = hidden + temb;
    hidden = norm2(hidden);
    hidden = torch::silu(hidden);
    hidden = conv2(hidden);
    if (conv_shortcut) input_tensor = (*conv_shortcut)(input_tensor);
    return (input_tensor + hidden) / 1.0;
  }

  MotionCondModule motion_cond_layer;
  GroupNorm norm1;
  Conv2d conv1;
  Linear time_emb_proj;
  GroupNorm norm2;
  Conv2d conv2;
  std::unique_ptr<Conv2d> conv_shortcut;
};

// Scores are held: the CPU has no xformers.
struct AttentionBlock : Unit {
  AttentionBlock(const Unit& parent, std::string_view name, int64_t channels, int64_t head_dim, const StdiffSettings& c)
      : Unit(parent, name),
        heads(head_dim > 0 ? channels / head_dim : 1),
        norm(*this, "group_norm", c.groups, channels),
        query(*this, "query", channels, channels),
        key(*this, "key", channels, channels),
        value(*this, "value", channels, channels),
        proj_attn(*this, "proj_attn", channels, channels) {
    if (heads == 0 || channels % heads != 0)
      throw Error(fmt::format("[measure] attention_head_dim {} does not divide {} channels", head_dim, channels), "choose one that does");
  }

  Tensor operator()(const Tensor& x) const {
    const Within here(place);
    const int64_t b = x.size(0), ch = x.size(1), h = x.size(2), w = x.size(3);
    Tensor hidden = norm(x);
    hidden = hidden.view({b, ch, h * w}).transpose(1, 2);  // (B, T, C)
    Tensor q = query(hidden);
    Tensor k = key(hidden);
    Tensor v = value(hidden);
    q = heads_to_batch(q);  // (B * heads, T, head_dim)
    k = heads_to_batch(k);
    v = heads_to_batch(v);
    const Tensor scores = materialised_scores(q, k);  // (B * heads, T, T)
    Tensor probs = torch::softmax(scores.to(torch::kFloat32), -1);
    probs = probs.to(scores.scalar_type());
    hidden = torch::bmm(probs, v);
    hidden = batch_to_heads(hidden);  // (B, T, C)
    hidden = proj_attn(hidden);
    hidden = hidden.transpose(-1, -2).reshape({b, ch, h, w});
    return (hidden + x) / 1.0;
  }

 private:
  Tensor heads_to_batch(const Tensor& t) const {
    const int64_t b = t.size(0), n = t.size(1), d = t.size(2);
    return t.reshape({b, n, heads, d / heads}).permute({0, 2, 1, 3}).reshape({b * heads, n, d / heads});
  }
  Tensor batch_to_heads(const Tensor& t) const {
    const int64_t b = t.size(0), n = t.size(1), d = t.size(2);
    return t.reshape({b / heads, heads, n, d}).permute({0, 2, 1, 3}).reshape({b / heads, n, d * heads});
  }
  Tensor materialised_scores(const Tensor& q, const Tensor& k) const {
    const Tensor start = torch::empty({q.size(0), q.size(1), k.size(1)}, q.options());
    return torch::baddbmm(start, q, k.transpose(-1, -2), 0, 1 / std::sqrt(static_cast<double>(q.size(2))));
  }

  int64_t heads;
  GroupNorm norm;
  Linear query, key, value, proj_attn;
};

// Only blocks without attention know gradient checkpointing.
struct Layers : Unit {
  Layers(const Unit& parent, std::string_view name) : Unit(parent, name), attentions(*this, "attentions"), resnets(*this, "resnets") {}

  Tensor run_layer(size_t i, Tensor hidden, const Tensor& temb, const Tensor& m_feat) const {
    const ResnetBlock2D& resnet = resnets[i];
    if (attentions.size() > 0) {
      hidden = resnet(hidden, temb, m_feat);
      return attentions[i](hidden);
    }
    if (!build.checkpointing) return resnet(hidden, temb, m_feat);
    return checkpoint([&resnet](const Tensors& in) { return Tensors{resnet(in[0], in[1], in[2])}; }, {hidden, temb, m_feat})[0];
  }

  UnitList<AttentionBlock> attentions;
  UnitList<ResnetBlock2D> resnets;
};

struct DownBlock : Layers {
  DownBlock(const Unit& parent, std::string_view name, int64_t in, const StdiffLevel& level, bool downsample, int64_t temb,
            const StdiffSettings& c)
      : Layers(parent, name) {
    for (int64_t i = 0; i < c.layers_per_block && level.down_attention; ++i) attentions.add(level.channels, level.head_dim, c);
    for (int64_t i = 0; i < c.layers_per_block; ++i) resnets.add(i == 0 ? in : level.channels, level.channels, temb, c);
    if (downsample) downsampler = std::make_unique<Conv2d>(*this, "downsamplers.0.conv", level.channels, level.channels, 3, 2, 1);
  }
  Tensor operator()(Tensor hidden, const Tensor& temb, const Tensor& m_feat, Tensors& skips) const {
    const Within here(place);
    for (size_t i = 0; i < resnets.size(); ++i) skips.push_back(hidden = run_layer(i, std::move(hidden), temb, m_feat));
    if (downsampler) skips.push_back(hidden = (*downsampler)(hidden));
    return hidden;
  }
  std::unique_ptr<Conv2d> downsampler;
};

struct Upsample2D : Unit {
  Upsample2D(const Unit& parent, std::string_view name, int64_t channels)
      : Unit(parent, name), conv(*this, "conv", channels, channels, 3, 1, 1) {}
  Tensor operator()(const Tensor& x) const {
    const Within here(place);
    Tensor hidden = x;
    if (x.scalar_type() == torch::kBFloat16) hidden = hidden.to(torch::kFloat32);
    if (hidden.size(0) >= 64) hidden = hidden.contiguous();
    hidden = torch::upsample_nearest2d(wide(hidden), {2 * hidden.size(2), 2 * hidden.size(3)});
    if (x.scalar_type() == torch::kBFloat16) hidden = hidden.to(x.scalar_type());
    return conv(hidden);
  }
  Conv2d conv;
};

struct UpBlock : Layers {
  UpBlock(const Unit& parent, std::string_view name, int64_t in, int64_t previous, const StdiffLevel& level, bool upsample, int64_t temb,
          const StdiffSettings& c)
      : Layers(parent, name) {
    const int64_t layers = c.layers_per_block + 1;
    for (int64_t i = 0; i < layers && level.up_attention; ++i) attentions.add(level.channels, level.head_dim, c);
    for (int64_t i = 0; i < layers; ++i) {
      const int64_t skip = i == layers - 1 ? in : level.channels, before = i == 0 ? previous : level.channels;
      resnets.add(before + skip, level.channels, temb, c);
    }
    if (upsample) upsampler = std::make_unique<Upsample2D>(*this, "upsamplers.0", level.channels);
  }
  Tensor operator()(Tensor hidden, const Tensors& skips, const Tensor& temb, const Tensor& m_feat) const {
    const Within here(place);
    for (size_t i = 0; i < resnets.size(); ++i) {
      hidden = torch::cat({hidden, skips[skips.size() - 1 - i]}, 1);
      hidden = run_layer(i, std::move(hidden), temb, m_feat);
    }
    if (upsampler) hidden = (*upsampler)(hidden);
    return hidden;
  }
  std::unique_ptr<Upsample2D> upsampler;
};

struct UNetMidBlock2D : Unit {
  UNetMidBlock2D(const Unit& parent, std::string_view name, const StdiffLevel& level, int64_t temb, const StdiffSettings& c)
      : Unit(parent, name), attentions(*this, "attentions"), resnets(*this, "resnets") {
    attentions.add(level.channels, level.head_dim, c);
    for (int i = 0; i < 2; ++i) resnets.add(level.channels, level.channels, temb, c);
  }
  Tensor operator()(Tensor hidden, const Tensor& temb, const Tensor& m_feat) const {
    const Within here(place);
    hidden = resnets[0](hidden, temb, m_feat);
    hidden = attentions[0](hidden);
    return resnets[1](hidden, temb, m_feat);
  }
  UnitList<AttentionBlock> attentions;
  UnitList<ResnetBlock2D> resnets;
};

struct UNet2DMotionCond : Unit {
  UNet2DMotionCond(const Unit& parent, std::string_view name, const StdiffSettings& c)
      : Unit(parent, name),
        width(c.levels.front().channels),
        conv_in(*this, "conv_in", c.in_channels, width, 3, 1, 1),
        time_embedding(*this, "time_embedding", width, 4 * width),
        down_blocks(*this, "down_blocks"),
        up_blocks(*this, "up_blocks"),
        mid_block(with_blocks(c), "mid_block", c.levels.back(), 4 * width, c),
        conv_norm_out(*this, "conv_norm_out", c.groups, width),
        conv_out(*this, "conv_out", width, c.out_channels, 3, 1, 1) {}

  // Both lists come before the middle, in the order of parameters, too.
  const Unit& with_blocks(const StdiffSettings& c) {
    const size_t n = c.levels.size();
    for (size_t i = 0; i < n; ++i) down_blocks.add(c.levels[i == 0 ? 0 : i - 1].channels, c.levels[i], i + 1 < n, 4 * width, c);
    for (size_t i = n; i-- > 0;)
      up_blocks.add(c.levels[i == 0 ? 0 : i - 1].channels, c.levels[i + 1 < n ? i + 1 : i].channels, c.levels[i], i > 0, 4 * width, c);
    return *this;
  }

  Tensor operator()(const Tensor& input, const Tensor& timestep, const Tensor& m_feat) const {
    const Within here(place);
    Tensor timesteps = torch::ones({input.size(0)}, timestep.options());
    timesteps = timestep * timesteps;
    const Tensor t_emb = timestep_embedding(timesteps, width);
    const Tensor emb = time_embedding(t_emb);  // (B, 4 * width)

    Tensor sample = conv_in(input);
    Tensors skips{sample};
    for (size_t i = 0; i < down_blocks.size(); ++i) sample = down_blocks[i](sample, emb, m_feat, skips);
    sample = mid_block(sample, emb, m_feat);

    Tensors res_samples;  // the last ones stay until the end
    for (size_t i = 0; i < up_blocks.size(); ++i) {
      const auto first = skips.end() - static_cast<std::ptrdiff_t>(up_blocks[i].resnets.size());
      res_samples.assign(first, skips.end());
      skips.erase(first, skips.end());
      sample = up_blocks[i](sample, res_samples, emb, m_feat);
    }
    sample = conv_norm_out(sample);
    sample = torch::silu(sample);
    return conv_out(sample);  // (B, out_channels, H, W)
  }

  int64_t width;
  Conv2d conv_in;
  TimestepEmbedding time_embedding;
  UnitList<DownBlock> down_blocks;
  UnitList<UpBlock> up_blocks;
  UNetMidBlock2D mid_block;
  GroupNorm conv_norm_out;
  Conv2d conv_out;
};

class STDiff : public LiveModel, public Unit {
 public:
  STDiff(Build& build, const Job& job)
      : Unit(build), c_(job.config), tde_model_(*this, "tde_model", c_), unet_(*this, "diffusion_unet", c_) {}

  // Vo, Vp, Vo_last, noise, timesteps, noisy, idx_o, idx_p
  Tensors make_inputs(int64_t samples) override {
    const int64_t b = samples * c_.predicted, c = c_.image_channels;
    const auto frames = [&](int64_t count) { return torch::empty({samples, count, c, c_.height, c_.width}); };
    const auto images = [&](int64_t channels) { return torch::empty({b, channels, c_.height, c_.width}); };
    Tensors in{frames(c_.observed),
               frames(c_.predicted),
               frames(1),
               images(c_.out_channels),
               torch::empty({b}, torch::kInt64),
               images(c_.in_channels - (c_.autoregressive ? c : 0)),
               torch::empty({c_.observed}),
               torch::empty({c_.predicted})};
    for (int64_t i = 0; i < c_.observed; ++i) in[6].data_ptr<float>()[i] = static_cast<float>(i);
    for (int64_t i = 0; i < c_.predicted; ++i) in[7].data_ptr<float>()[i] = static_cast<float>(c_.observed + i);
    return in;
  }

  // Frames that follow each other; those to come with noise of a random step, which is what the network is to find.
  void fill(const Tensors& in, int64_t row, const Data& data, int64_t sample) const override {
    const int64_t pixels = c_.height * c_.width, frame = c_.image_channels * pixels, all = c_.observed + c_.predicted;
    std::vector<float> frames(static_cast<size_t>(all * frame));
    data.images(sample, all, c_.image_channels, c_.height, c_.width, frames.data());
    const auto copy = [&](int64_t first, int64_t count, const Tensor& to) {
      std::copy_n(frames.begin() + first * frame, count * frame, to.data_ptr<float>() + row * count * frame);
    };
    copy(0, c_.observed, in[0]);
    copy(c_.observed, c_.predicted, in[1]);
    copy(c_.observed - 1, 1, in[2]);
    std::mt19937_64 numbers = data.random(sample, 5);
    numbers.discard(1);  // the seed of its path
    std::normal_distribution<float> normal;
    const int64_t noise_channels = c_.out_channels, noisy_channels = in[5].size(1);
    for (int64_t f = 0; f < c_.predicted; ++f) {
      const int64_t at = row * c_.predicted + f, t = static_cast<int64_t>(numbers() % kSteps);
      in[4].data_ptr<int64_t>()[at] = t;
      const float share = static_cast<float>(std::pow(std::cos(0.5 * 3.14159265 * static_cast<double>(t + 1) / (kSteps + 1)), 2));
      for (int64_t i = 0; i < noise_channels * pixels; ++i) in[3].data_ptr<float>()[at * noise_channels * pixels + i] = normal(numbers);
      for (int64_t ch = 0; ch < noisy_channels; ++ch)
        for (int64_t i = 0; i < pixels; ++i) {
          const float signal = frames[static_cast<size_t>((c_.observed + f) * frame + (ch % c_.image_channels) * pixels + i)];
          const float noise = in[3].data_ptr<float>()[(at * noise_channels + ch % noise_channels) * pixels + i];
          in[5].data_ptr<float>()[(at * noisy_channels + ch) * pixels + i] = std::sqrt(share) * signal + std::sqrt(1 - share) * noise;
        }
    }
  }

  void begin(const Data& data, int64_t first, int64_t samples) override {
    seeds_.clear();
    for (int64_t i = 0; i < samples; ++i) seeds_.push_back(data.random(first + i, 5)());
  }

  Tensor loss(const Tensors& inputs) override {
    const Tensor sample = predict(inputs);
    const Autocast off(false);
    Tensor loss;
    {
      const Tensor wide = sample.to(torch::kFloat32);
      loss = torch::l1_loss(wide, inputs[3], at::Reduction::None);
    }
    loss = loss.mean();
    return loss;
  }

 private:
  static constexpr uint64_t kSteps = 1000;

  Tensor predict(const Tensors& in) {
    const Tensor m_context = tde_model_.context_encode(in[0]);  // (N, M, h, w)
    Tensor m_future;                                            // (Tp, N, M, h, w)
    {
      const Tensor indices = torch::cat({in[6].slice(0, c_.observed - 1, c_.observed), in[7]}, 0);
      m_future = tde_model_.future_predict(m_context, seeds_);
    }
    Tensor prev_frames, noisy = in[5];
    if (c_.autoregressive) {
      prev_frames = torch::cat({in[2], in[1].slice(1, 0, c_.predicted - 1)}, 1);
      noisy = torch::cat({noisy, prev_frames.flatten(0, 1)}, 1);  // (N Tp, in_channels, H, W)
    }
    const Tensor m_feat = m_future.permute({1, 0, 2, 3, 4}).flatten(0, 1);  // (N Tp, M, h, w)
    return unet_(noisy, in[4], m_feat);
  }

  const StdiffSettings c_;
  DiffModel tde_model_;
  UNet2DMotionCond unet_;
  std::vector<uint64_t> seeds_;  // of the random path of each sample
};

}  // namespace

std::unique_ptr<LiveModel> make_live_stdiff(Build& build, const Job& job) { return std::make_unique<STDiff>(build, job); }

}  // namespace plimsoll::measure
