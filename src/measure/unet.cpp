// diffusers' UNet2DConditionModel, the denoiser of Stable Diffusion, with LoRA on its attention as PEFT puts it there or trained whole:
// latents, timesteps, noise and text states are inputs. Locals are those of src/model/unet2d_condition.cpp and src/nn/unet_blocks.cpp.
#include <fmt/format.h>

#include "job/config_list.h"
#include "measure/live_model.h"
#include "measure/timestep_embedding.h"

namespace plimsoll::measure {

namespace {

constexpr int64_t kPixelsPerLatent = 8, kTextTokens = 77;

struct UnetSettings {
  explicit UnetSettings(const Config& c)
      : in_channels(c.size({"in_channels"}, 4)),
        out_channels(c.size({"out_channels"}, 4)),
        groups(c.size({"norm_num_groups"}, 32)),
        down_types(
            name_list(c, "down_block_types", {"CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"})),
        up_types(name_list(c, "up_block_types", {"UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"})),
        channels(size_list(c, "block_out_channels", {320, 640, 1280, 1280})),
        layers(size_per_block(c, "layers_per_block", 2, channels.size())),
        heads(size_per_block(c, "attention_head_dim", 8, channels.size())),
        text_width(size_per_block(c, "cross_attention_dim", 1280, channels.size())),
        transformers(size_per_block(c, "transformer_layers_per_block", 1, channels.size())),
        text_tokens(c.size({"text_tokens"}, kTextTokens)) {
    if (!c.text({"addition_embed_type"}, "").empty() || c.flag({"use_linear_projection"}, false) || c.flag({"upcast_attention"}, false))
      throw Error("[measure] of diffusers' U-Nets that of Stable Diffusion 1.x is trained", "e.g. sd-1.5-unet, in a size of your own");
    if (down_types.size() != channels.size() || up_types.size() != channels.size())
      throw Error("[measure] as many down_block_types and up_block_types as block_out_channels are needed", "give all three");
  }
  int64_t in_channels, out_channels, groups;
  std::vector<std::string> down_types, up_types;
  std::vector<int64_t> channels, layers, heads, text_width, transformers;
  int64_t text_tokens;
};

struct Level {
  int64_t channels, heads, text_width, transformers;
};
Level level_of(const UnetSettings& c, size_t i) { return {c.channels[i], c.heads[i], c.text_width[i], c.transformers[i]}; }

struct ResnetBlock2D : Unit {
  ResnetBlock2D(const Unit& parent, std::string_view name, int64_t in, int64_t out, int64_t temb, int64_t groups)
      : Unit(parent, name),
        norm1(*this, "norm1", groups, in),
        conv1(*this, "conv1", in, out, 3, 1, 1),
        time_emb_proj(*this, "time_emb_proj", temb, out),
        norm2(*this, "norm2", groups, out),
        conv2(*this, "conv2", out, out, 3, 1, 1),
        conv_shortcut(in != out ? std::make_unique<Conv2d>(*this, "conv_shortcut", in, out, 1) : nullptr) {}

  Tensor operator()(const Tensor& input, const Tensor& time) const {
    const Within here(place);
    Tensor input_tensor = input, temb = time;
    Tensor hidden = norm1(input_tensor);  // (N, in, H, W)
    hidden = torch::silu(hidden);
    hidden = conv1(hidden);  // (N, out, H, W)
    temb = torch::silu(temb);
    temb = time_emb_proj(temb).unsqueeze(2).unsqueeze(3);  // (N, out, 1, 1)
    hidden = hidden + temb;
    hidden = norm2(hidden);
    hidden = torch::silu(hidden);
    hidden = conv2(hidden);
    if (conv_shortcut) {
      input_tensor = input_tensor.contiguous();
      input_tensor = (*conv_shortcut)(input_tensor);
    }
    const Tensor sum = input_tensor + hidden;
    return sum / 1.0;
  }

  GroupNorm norm1;
  Conv2d conv1;
  Linear time_emb_proj;
  GroupNorm norm2;
  Conv2d conv2;
  std::unique_ptr<Conv2d> conv_shortcut;
};

Tensor run_resnet(const ResnetBlock2D& resnet, const Tensor& hidden, const Tensor& temb) {
  if (!resnet.build.checkpointing) return resnet(hidden, temb);
  return checkpoint([&resnet](const Tensors& in) { return Tensors{resnet(in[0], in[1])}; }, {hidden, temb})[0];
}

// Scores are held, as diffusers' AttnProcessor does.
struct Attention : Unit {
  Attention(const Unit& parent, std::string_view name, int64_t width, int64_t heads, int64_t cross_width)
      : Unit(parent, name),
        heads(heads),
        to_q(*this, "to_q", width, width, false),
        to_k(*this, "to_k", cross_width, width, false),
        to_v(*this, "to_v", cross_width, width, false),
        to_out(*this, "to_out.0", width, width) {}

  Tensor operator()(const Tensor& x, const Tensor& encoder) const {
    const Within here(place);
    Tensor hidden = x;
    Tensor query = to_q(hidden);  // (N, T, H D)
    const Tensor states = encoder.defined() ? encoder : hidden;
    Tensor key = to_k(states), value = to_v(states);  // (N, K, H D)
    Tensor probs;
    query = head_to_batch_dim(query);  // (N H, T, D)
    key = head_to_batch_dim(key);
    value = head_to_batch_dim(value);
    probs = get_attention_scores(query, key);  // (N H, T, K)
    hidden = torch::bmm(probs, value);         // (N H, T, D)
    hidden = batch_to_head_dim(hidden);        // (N, T, H D)
    hidden = to_out(hidden);                   // (N, T, C)
    hidden = hidden / 1.0;
    return hidden;
  }

 private:
  Tensor head_to_batch_dim(const Tensor& x) const {
    const Tensor split = x.reshape({x.size(0), x.size(1), heads, -1}).permute({0, 2, 1, 3});
    return split.reshape({x.size(0) * heads, x.size(1), -1});
  }
  Tensor batch_to_head_dim(const Tensor& x) const {
    const Tensor tokens_first = x.reshape({x.size(0) / heads, heads, x.size(1), -1}).permute({0, 2, 1, 3});
    return tokens_first.reshape({x.size(0) / heads, x.size(1), -1});
  }
  static Tensor get_attention_scores(const Tensor& q, const Tensor& k) {
    Tensor start = torch::empty({q.size(0), q.size(1), k.size(1)}, q.options());
    Tensor scores = torch::baddbmm(start, q, k.transpose(-1, -2), 0, 1 / std::sqrt(static_cast<double>(q.size(2))));
    start.reset();
    Tensor probs = torch::softmax(wide(scores), -1);
    scores.reset();
    probs = probs.to(q.scalar_type());
    return probs;
  }

  int64_t heads;
  Linear to_q, to_k, to_v, to_out;
};

struct FeedForward : Unit {
  FeedForward(const Unit& parent, std::string_view name, int64_t width)
      : Unit(parent, name), proj(*this, "net.0.proj", width, 8 * width), out(*this, "net.2", 4 * width, width) {}
  Tensor operator()(const Tensor& x) const {
    const Within here(place);
    Tensor hidden = gated(x);  // (N, T, F)
    return out(hidden);        // (N, T, C)
  }
  Tensor gated(const Tensor& x) const {
    Tensor hidden = proj(x);  // (N, T, 2 F)
    const Tensors halves = hidden.chunk(2, -1);
    hidden = halves[0];
    const Tensor gate = torch::gelu(halves[1]);
    return hidden * gate;
  }
  Linear proj, out;
};

struct BasicTransformerBlock : Unit {
  BasicTransformerBlock(const Unit& parent, std::string_view name, const Level& l)
      : Unit(parent, name),
        norm1(*this, "norm1", l.channels),
        attn1(*this, "attn1", l.channels, l.heads, l.channels),
        norm2(*this, "norm2", l.channels),
        attn2(*this, "attn2", l.channels, l.heads, l.text_width),
        norm3(*this, "norm3", l.channels),
        ff(*this, "ff", l.channels) {}

  Tensor operator()(const Tensor& x, const Tensor& encoder) const {
    const Within here(place);
    Tensor norm_hidden = norm1(x);  // (N, T, C)
    Tensor attn_output = attn1(norm_hidden, {});
    Tensor hidden = attn_output + x;
    norm_hidden = norm2(hidden);
    attn_output = attn2(norm_hidden, encoder);
    hidden = attn_output + hidden;
    norm_hidden = norm3(hidden);
    const Tensor ff_output = ff(norm_hidden);
    hidden = ff_output + hidden;
    return hidden;
  }

  LayerNorm norm1;
  Attention attn1;
  LayerNorm norm2;
  Attention attn2;
  LayerNorm norm3;
  FeedForward ff;
};

struct Transformer2DModel : Unit {
  Transformer2DModel(const Unit& parent, std::string_view name, const Level& l, int64_t groups)
      : Unit(parent, name),
        norm(*this, "norm", groups, l.channels, 1e-6),
        proj_in(*this, "proj_in", l.channels, l.channels, 1),
        blocks(*this, "transformer_blocks") {
    for (int64_t i = 0; i < l.transformers; ++i) blocks.add(l);
    proj_out = std::make_unique<Conv2d>(*this, "proj_out", l.channels, l.channels, 1);
  }

  Tensor operator()(const Tensor& x, const Tensor& encoder) const {
    const Within here(place);
    Tensor hidden = project_in(x);  // (N, T, C)
    for (size_t i = 0; i < blocks.size(); ++i) {
      const BasicTransformerBlock& block = blocks[i];
      const auto run = [&block](const Tensors& in) { return Tensors{block(in[0], in[1])}; };
      hidden = (build.checkpointing ? checkpoint(run, {hidden, encoder}) : run({hidden, encoder}))[0];
    }
    const Tensor out = project_out(hidden, x.sizes());  // (N, C, H, W)
    return out + x;
  }

  Tensor project_in(const Tensor& x) const {
    Tensor hidden = norm(x);  // (N, C, H, W)
    hidden = proj_in(hidden);
    return hidden.permute({0, 2, 3, 1}).reshape({x.size(0), x.size(2) * x.size(3), x.size(1)});
  }
  Tensor project_out(Tensor hidden, c10::IntArrayRef sizes) const {
    hidden = hidden.reshape({sizes[0], sizes[2], sizes[3], sizes[1]}).permute({0, 3, 1, 2}).contiguous();
    return (*proj_out)(hidden);
  }

  GroupNorm norm;
  Conv2d proj_in;
  UnitList<BasicTransformerBlock> blocks;
  std::unique_ptr<Conv2d> proj_out;
};

// Residual blocks, each with a transformer behind it or none.
struct Layers : Unit {
  Layers(const Unit& parent, std::string_view name) : Unit(parent, name), attentions(*this, "attentions"), resnets(*this, "resnets") {}
  Tensor run(size_t i, const Tensor& x, const Tensor& temb, const Tensor& encoder) const {
    Tensor hidden = run_resnet(resnets[i], x, temb);  // (N, C, H, W)
    if (attentions.size() > 0) hidden = attentions[i](hidden, encoder);
    return hidden;
  }
  UnitList<Transformer2DModel> attentions;
  UnitList<ResnetBlock2D> resnets;
};

struct DownBlock : Layers {
  DownBlock(const Unit& parent, std::string_view name, const UnetSettings& c, size_t level) : Layers(parent, name) {
    const int64_t out = c.channels[level];
    const bool attends = c.down_types[level] == "CrossAttnDownBlock2D";
    for (int64_t k = 0; k < c.layers[level] && attends; ++k) attentions.add(level_of(c, level), c.groups);
    for (int64_t k = 0; k < c.layers[level]; ++k)
      resnets.add(k == 0 ? c.channels[level == 0 ? 0 : level - 1] : out, out, 4 * c.channels[0], c.groups);
    if (level + 1 < c.channels.size()) downsampler = std::make_unique<Conv2d>(*this, "downsamplers.0.conv", out, out, 3, 2, 1);
  }

  Tensors operator()(const Tensor& x, const Tensor& temb, const Tensor& encoder) const {
    const Within here(place);
    Tensor hidden = x;
    Tensors output_states;
    for (size_t i = 0; i < resnets.size(); ++i) {
      hidden = run(i, hidden, temb, encoder);
      output_states.push_back(hidden);
    }
    if (downsampler) {
      hidden = (*downsampler)(hidden);  // (N, C, H / 2, W / 2)
      output_states.push_back(hidden);
    }
    return output_states;
  }

  std::unique_ptr<Conv2d> downsampler;
};

struct UpBlock : Layers {
  UpBlock(const Unit& parent, std::string_view name, const UnetSettings& c, size_t i) : Layers(parent, name) {
    const size_t n = c.channels.size(), level = n - 1 - i;
    const int64_t out = c.channels[level], before = c.channels[i == 0 ? level : level + 1],
                  skipped = c.channels[level == 0 ? 0 : level - 1];
    const int64_t count = c.layers[level] + 1;
    const bool attends = c.up_types[i] == "CrossAttnUpBlock2D";
    for (int64_t k = 0; k < count && attends; ++k) attentions.add(level_of(c, level), c.groups);
    for (int64_t k = 0; k < count; ++k)
      resnets.add((k == 0 ? before : out) + (k == count - 1 ? skipped : out), out, 4 * c.channels[0], c.groups);
    if (i + 1 < n) upsampler = std::make_unique<Conv2d>(*this, "upsamplers.0.conv", out, out, 3, 1, 1);
  }

  Tensor operator()(const Tensor& x, const Tensor& temb, const Tensors& skipped, const Tensor& encoder) const {
    const Within here(place);
    Tensor hidden = x;
    for (size_t i = 0; i < resnets.size(); ++i) {
      hidden = torch::cat({hidden, skipped[skipped.size() - 1 - i]}, 1);
      hidden = run(i, hidden, temb, encoder);
    }
    if (upsampler) hidden = upsampled(hidden);
    return hidden;
  }

  Tensor upsampled(const Tensor& x) const {
    const Tensor larger = torch::upsample_nearest2d(wide(x), {2 * x.size(2), 2 * x.size(3)});
    return (*upsampler)(larger);
  }

  std::unique_ptr<Conv2d> upsampler;
};

struct MidBlock : Unit {
  MidBlock(const Unit& parent, std::string_view name, const UnetSettings& c)
      : Unit(parent, name), attentions(*this, "attentions"), resnets(*this, "resnets") {
    attentions.add(level_of(c, c.channels.size() - 1), c.groups);
    for (int i = 0; i < 2; ++i) resnets.add(c.channels.back(), c.channels.back(), 4 * c.channels[0], c.groups);
  }

  Tensor operator()(const Tensor& x, const Tensor& temb, const Tensor& encoder) const {
    const Within here(place);
    Tensor hidden = resnets[0](x, temb);  // (N, C, H, W), under no checkpoint
    hidden = attentions[0](hidden, encoder);
    hidden = run_resnet(resnets[1], hidden, temb);
    return hidden;
  }

  UnitList<Transformer2DModel> attentions;
  UnitList<ResnetBlock2D> resnets;
};

struct UNet2DConditionModel : Unit {
  UNet2DConditionModel(const Unit& parent, std::string_view name, const UnetSettings& c)
      : Unit(parent, name),
        width(c.channels[0]),
        conv_in(*this, "conv_in", c.in_channels, width, 3, 1, 1),
        time_embedding(*this, "time_embedding", width, 4 * width),
        down_blocks(*this, "down_blocks"),
        up_blocks(*this, "up_blocks"),
        mid_block(with_blocks(c), "mid_block", c),
        conv_norm_out(*this, "conv_norm_out", c.groups, width),
        conv_out(*this, "conv_out", width, c.out_channels, 3, 1, 1) {}

  // Both lists come before the middle, in the order of parameters, too.
  const Unit& with_blocks(const UnetSettings& c) {
    for (size_t i = 0; i < c.channels.size(); ++i) down_blocks.add(c, i);
    for (size_t i = 0; i < c.channels.size(); ++i) up_blocks.add(c, i);
    return *this;
  }

  Tensor operator()(const Tensor& latents, const Tensor& timestep, const Tensor& encoder) const {
    const Within here(place);
    const Tensor t_emb = timestep_embedding(timestep, width);
    Tensor emb = time_embedding(t_emb);  // (N, E)
    Tensor sample = conv_in(latents);    // (N, C, H, W)
    Tensors down_samples{sample}, res_samples;
    for (size_t i = 0; i < down_blocks.size(); ++i) {
      res_samples = down_blocks[i](sample, emb, encoder);
      sample = res_samples.back();
      down_samples.insert(down_samples.end(), res_samples.begin(), res_samples.end());
    }
    sample = mid_block(sample, emb, encoder);
    for (size_t i = 0; i < up_blocks.size(); ++i) {
      const auto first = down_samples.end() - static_cast<std::ptrdiff_t>(up_blocks[i].resnets.size());
      res_samples.assign(first, down_samples.end());
      down_samples.erase(first, down_samples.end());
      sample = up_blocks[i](sample, emb, res_samples, encoder);
    }
    sample = conv_norm_out(sample);
    sample = torch::silu(sample);
    return conv_out(sample);  // (N, out_channels, H, W)
  }

  int64_t width;
  Conv2d conv_in;
  TimestepEmbedding time_embedding;
  UnitList<DownBlock> down_blocks;
  UnitList<UpBlock> up_blocks;
  MidBlock mid_block;
  GroupNorm conv_norm_out;
  Conv2d conv_out;
};

class DiffusionUNet : public LiveModel, public Unit {
 public:
  DiffusionUNet(Build& build, const Job& job) : Unit(build), c_(job.config), side_(job.seq / kPixelsPerLatent), net_(*this, "net", c_) {
    const int64_t halvings = static_cast<int64_t>(c_.channels.size()) - 1;
    if (job.seq % (kPixelsPerLatent << halvings) != 0)
      throw Error(
          fmt::format("[measure] {} pixels cannot be halved {} times after the autoencoder's {}", job.seq, halvings, kPixelsPerLatent),
          fmt::format("take a multiple of {}", kPixelsPerLatent << halvings));
  }

  // Noisy latents, timesteps, the noise in them, text states.
  Tensors make_inputs(int64_t samples) override {
    return {torch::empty({samples, c_.in_channels, side_, side_}), torch::empty({samples}, torch::kInt64),
            torch::empty({samples, c_.out_channels, side_, side_}), torch::empty({samples, c_.text_tokens, c_.text_width[0]})};
  }

  void fill(const Tensors& in, int64_t row, const Data& data, int64_t sample) const override {
    constexpr uint64_t kSteps = 1000;
    const int64_t pixels = side_ * side_;
    float* latents = in[0].data_ptr<float>() + row * c_.in_channels * pixels;
    float* noise = in[2].data_ptr<float>() + row * c_.out_channels * pixels;
    float* text = in[3].data_ptr<float>() + row * c_.text_tokens * c_.text_width[0];
    data.images(sample, 1, c_.in_channels, side_, side_, latents);
    std::mt19937_64 numbers = data.random(sample, 6);
    const uint64_t t = numbers() % kSteps;
    in[1].data_ptr<int64_t>()[row] = static_cast<int64_t>(t);
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < c_.out_channels * pixels; ++i) noise[i] = normal(numbers);
    const auto share = static_cast<float>(std::pow(std::cos(1.5707963 * static_cast<double>(t + 1) / (kSteps + 1)), 2));
    for (int64_t i = 0; i < c_.in_channels * pixels; ++i)
      latents[i] = std::sqrt(share) * latents[i] + std::sqrt(1 - share) * noise[i % (c_.out_channels * pixels)];
    for (int64_t i = 0; i < c_.text_tokens * c_.text_width[0]; ++i) text[i] = normal(numbers);
  }

  Tensor loss(const Tensors& in) override {
    const Tensor prediction = net_(in[0], in[1], in[3]);
    return torch::mse_loss(prediction.to(torch::kFloat32), in[2].to(torch::kFloat32));
  }

 private:
  const UnetSettings c_;
  int64_t side_;
  UNet2DConditionModel net_;
};

}  // namespace

std::unique_ptr<LiveModel> make_live_unet(Build& build, const Job& job) { return std::make_unique<DiffusionUNet>(build, job); }

}  // namespace plimsoll::measure
