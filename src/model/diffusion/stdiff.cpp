// STDiff (stochastic video prediction by diffusion), as the fork for KITTI's range images trains it: motion features of observed frames
// are integrated into the future, and a denoiser of all predicted frames at once is conditioned on them.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "model/diffusion/stdiff_motion.h"
#include "model/diffusion/stdiff_unet.h"
#include "model/family.h"
#include "ops/loss.h"
#include "ops/pointwise.h"
#include "ops/reduce.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

constexpr int64_t kMostFrames = 1000;
constexpr int64_t kMostLevels = 16;

struct Options {
  int64_t height = 64, width = 512;
  int64_t observed = 3, predicted = 3;  // frames
  int64_t image_channels = 1;
  bool autoregressive = true;  // each frame is denoised beside the one before it
  bool whole = true;           // or the denoiser alone, with motion features as an input
  StdiffMotionOptions motion;
  StdiffUnetOptions unet;

  int64_t feature_height() const { return height >> motion.n_downs; }
  int64_t feature_width() const { return width >> motion.n_downs; }
};

[[noreturn]] void wrong(const Config& c, const std::string& what, const std::string& hint) {
  throw Error("[" + c.source() + "] " + what, hint);
}

int64_t frames_of(const Config& c, std::initializer_list<const char*> keys, int64_t least) {
  const int64_t n = c.size(keys, 3);
  if (n < least || n > kMostFrames)
    wrong(c, fmt::format("{} is {}", *(keys.begin() + 1), n), fmt::format("give {} to {} frames", least, kMostFrames));
  return n;
}

std::vector<int64_t> block_out_channels(const Config& c) {
  const nlohmann::json* list = c.find({"ch", "block_out_channels"});
  if (!list) return {128, 256, 256, 512, 512};
  if (!list->is_array() || list->empty() || list->size() > kMostLevels)
    wrong(c, "block_out_channels is " + dump(*list).substr(0, 80),
          fmt::format("give a list of 1 to {} widths: [128, 256, 512]", kMostLevels));
  std::vector<int64_t> out;
  for (const nlohmann::json& n : *list) out.push_back(Config(c.source() + ": block_out_channels", {{"width", n}}).size({"width"}, 1));
  return out;
}

// One for all levels, or one for each; null: a single head.
std::vector<int64_t> head_dims(const Config& c, size_t levels) {
  const nlohmann::json* value = c.find({"head", "attention_head_dim"});
  const bool single_head = !value && (c.is_null("head") || c.is_null("attention_head_dim"));
  if (!value || !value->is_array()) return std::vector<int64_t>(levels, single_head ? 0 : c.size({"head", "attention_head_dim"}, 128));
  if (value->size() != levels)
    wrong(c, fmt::format("attention_head_dim has {} entries for {} levels", value->size(), levels),
          "give one entry for each of block_out_channels");
  std::vector<int64_t> out;
  for (const nlohmann::json& n : *value)
    out.push_back(n.is_null() ? 0 : Config(c.source() + ": attention_head_dim", {{"head_dim", n}}).size({"head_dim"}, 1));
  return out;
}

// Which blocks have attention: the names are diffusers'. All but the one at full resolution by default.
std::vector<bool> attention_of(const Config& c, const char* key, const std::string& kind, size_t levels) {
  std::vector<bool> out(levels, true);
  const nlohmann::json* names = c.find({key});
  if (!names) {
    (kind == "Down" ? out.front() : out.back()) = false;
    return out;
  }
  if (!names->is_array() || names->size() != levels)
    wrong(c, std::string(key) + " is " + dump(*names).substr(0, 80), "give one name for each of block_out_channels");
  for (size_t i = 0; i < levels; ++i) {
    const nlohmann::json& name = (*names)[i];
    if (name != kind + "Block2D" && name != "Attn" + kind + "Block2D")
      wrong(c, std::string(key) + " has " + dump(name).substr(0, 80), "known: " + kind + "Block2D, Attn" + kind + "Block2D");
    out[i] = name != kind + "Block2D";
  }
  return out;
}

std::vector<StdiffUnetOptions::Level> levels_of(const Config& c) {
  const std::vector<int64_t> channels = block_out_channels(c), heads = head_dims(c, channels.size());
  const std::vector<bool> down = attention_of(c, "down_block_types", "Down", channels.size());
  std::vector<bool> up = attention_of(c, "up_block_types", "Up", channels.size());
  std::reverse(up.begin(), up.end());
  std::vector<StdiffUnetOptions::Level> levels;
  for (size_t i = 0; i < channels.size(); ++i) levels.push_back({channels[i], heads[i], down[i], up[i]});
  return levels;
}

void check_sizes(const Config& c, const Options& o) {
  const int64_t halvings = std::max<int64_t>(static_cast<int64_t>(o.unet.levels.size()) - 1, o.motion.n_downs);
  const int64_t unit = int64_t{1} << halvings;
  if (o.height % unit != 0 || o.width % unit != 0)
    wrong(c, fmt::format("images of {} x {} cannot be halved {} times", o.height, o.width, halvings),
          fmt::format("choose multiples of {}, or fewer block_out_channels", unit));
  if (o.autoregressive && o.unet.in_channels <= o.image_channels)
    wrong(c, fmt::format("in_channels is {}, of which {} are the frame before", o.unet.in_channels, o.image_channels),
          "give more in_channels, or set autoregressive to false");
}

Options options_of(const Config& c) {
  require_known_arguments(c, "stdiff",
                          {"H",
                           "height",
                           "Wd",
                           "width",
                           "To",
                           "observed",
                           "Tp",
                           "predicted",
                           "ch",
                           "block_out_channels",
                           "head",
                           "attention_head_dim",
                           "xformers_on",
                           "use_xformers",
                           "part",
                           "in_channels",
                           "out_channels",
                           "image_channels",
                           "model_channels",
                           "m_channels",
                           "n_downs",
                           "n_layers",
                           "dt",
                           "layers_per_block",
                           "norm_num_groups",
                           "autoregressive",
                           "down_block_types",
                           "up_block_types"});
  Options o;
  o.height = c.size({"H", "height"}, o.height);
  o.width = c.size({"Wd", "width"}, o.width);
  const std::string part = c.text({"part"}, "whole");
  if (part != "whole" && part != "unet") wrong(c, "part is '" + part + "'", "known: whole, unet");
  o.whole = part == "whole";
  o.observed = frames_of(c, {"To", "observed"}, o.whole ? 2 : 1);
  o.predicted = frames_of(c, {"Tp", "predicted"}, 1);
  o.image_channels = o.motion.image_channels = c.size({"image_channels"}, 1);
  o.autoregressive = c.flag({"autoregressive"}, true);
  o.motion.model_channels = c.size({"model_channels"}, o.motion.model_channels);
  o.motion.n_downs = c.size({"n_downs"}, o.motion.n_downs);
  if (o.motion.n_downs > kMostLevels) wrong(c, fmt::format("n_downs is {}", o.motion.n_downs), fmt::format("give at most {}", kMostLevels));
  o.motion.n_layers = c.size({"n_layers"}, o.motion.n_layers);
  o.motion.dt = c.number({"dt"}, o.motion.dt);
  if (!(o.motion.dt >= 1e-3)) wrong(c, fmt::format("dt is {}", o.motion.dt), "give a step of at least 0.001 frames");
  o.unet.in_channels = c.size({"in_channels"}, o.unet.in_channels);
  o.unet.out_channels = c.size({"out_channels"}, o.unet.out_channels);
  o.unet.motion_channels = c.size({"m_channels"}, o.motion.motion_channels());
  if (o.whole && o.unet.motion_channels != o.motion.motion_channels())
    wrong(c, fmt::format("m_channels is {}, and the motion model makes {}", o.unet.motion_channels, o.motion.motion_channels()),
          "m_channels is model_channels * 2^n_downs");
  o.unet.layers_per_block = c.size({"layers_per_block"}, o.unet.layers_per_block);
  o.unet.norm_num_groups = c.size({"norm_num_groups"}, o.unet.norm_num_groups);
  o.unet.xformers = c.flag({"xformers_on", "use_xformers"}, true);
  o.unet.levels = levels_of(c);
  check_sizes(c, o);
  return o;
}

class STDiffDiffusers : public Model {
 public:
  STDiffDiffusers(Build& build, const Config& c) : Model(build), o_(options_of(c)) {
    if (build.checkpointing.on() && !build.checkpointing.style.saved_ops.empty())
      throw Error("[stdiff] its own checkpoints are reentrant and save no ops", "leave save out of checkpointing");
    if (o_.whole) tde_model_.emplace(*this, "tde_model", o_.motion);
    diffusion_unet_.emplace(*this, "diffusion_unet", o_.unet);
  }

  // Vo, Vp, Vo_last, noise, timesteps, noisy, idx_o, idx_p; and motion features for the denoiser alone.
  Tensors make_inputs(int64_t samples, int64_t, DType dtype) override {
    const int64_t b = checked_mul(samples, o_.predicted), c = o_.image_channels;
    const auto frames = [&](int64_t count) { return empty(tape(), {samples, count, c, o_.height, o_.width}, dtype); };
    const auto images = [&](int64_t channels) { return empty(tape(), {b, channels, o_.height, o_.width}, dtype); };
    Tensors inputs{frames(o_.observed),
                   frames(o_.predicted),
                   frames(1),
                   images(o_.unet.out_channels),
                   empty(tape(), {b}, DType::int64),
                   images(o_.unet.in_channels - (o_.autoregressive ? c : 0)),
                   empty(tape(), {o_.observed}, DType::float32),
                   empty(tape(), {o_.predicted}, DType::float32)};
    if (o_.whole) return inputs;
    inputs.push_back(empty(tape(), {b, o_.unet.motion_channels, o_.feature_height(), o_.feature_width()}, dtype));
    make_leaf(inputs.back());
    return inputs;
  }

  Output forward(const Batch& batch) override {
    Tensor input;  // of the denoiser alone: the caller's
    const Tensor sample = o_.whole ? predict(batch.own) : denoise(batch.own, input);
    const AutocastGuard off(tape(), std::nullopt);
    Tensor loss;
    {
      const Tensor wide = to(sample, DType::float32);
      loss = l1_loss(wide, batch.own[3]);
    }
    loss = mean(loss, {}, false);
    return {loss, {}};
  }

  std::string sample(int64_t) const override {
    return fmt::format("{} + {} frames of {} x {}", o_.observed, o_.predicted, o_.height, o_.width);
  }

 private:
  Tensor predict(const Tensors& in) {
    if (build().dtype != DType::float32 && !tape().autocast)
      throw Error("[stdiff] the motion model's first state is fp32 and does not fit half-precision weights",
                  "use precision amp or amp-fp16, which keep the weights in fp32");
    const Tensor m_context = tde_model_->context_encode(in[0]);  // (N, M, h, w)
    Tensor m_future;                                             // (Tp, N, M, h, w)
    {
      const Tensor indices = cat({slice(in[6], 0, o_.observed - 1, o_.observed), in[7]}, 0);
      m_future = tde_model_->future_predict(m_context, o_.observed, o_.predicted);
    }
    Tensor prev_frames, noisy = in[5];
    if (o_.autoregressive) {
      prev_frames = previous_frames(in);
      noisy = cat({noisy, flatten(prev_frames, 0, 1)}, 1);  // (N Tp, in_channels, H, W)
    }
    const Tensor m_feat = flatten(permute(m_future, {1, 0, 2, 3, 4}), 0, 1);  // (N Tp, M, h, w)
    return (*diffusion_unet_)(noisy, in[4], m_feat);
  }

  Tensor denoise(const Tensors& in, Tensor& input) {
    input = in[5];
    if (o_.autoregressive) input = cat({input, flatten(previous_frames(in), 0, 1)}, 1);
    return (*diffusion_unet_)(input, in[4], in[8]);
  }

  // (N, Tp, C, H, W)
  Tensor previous_frames(const Tensors& in) const { return cat({in[2], slice(in[1], 1, 0, o_.predicted - 1)}, 1); }

  Options o_;
  std::optional<DiffModel> tde_model_;
  std::optional<UNet2DMotionCond> diffusion_unet_;
};

std::unique_ptr<Model> make_stdiff(Build& build, const Config& config) { return std::make_unique<STDiffDiffusers>(build, config); }

}  // namespace

const Family& stdiff_family() {
  static const Family kFamily{
      .name = "stdiff",
      .library = "STDiff",
      .models = {{"stdiff", {"STDiffDiffusers"}, InputKind::own, 0, make_stdiff}},
      .presets =
          {// STDiff on KITTI's range images: the run that its memory analysis is about, and the committed configurations
           {"stdiff-kitti-64x2048", R"({"height":64,"width":2048,"observed":5,"predicted":5})", 0},
           {"stdiff-kitti-64x512", R"({"height":64,"width":512,"observed":3,"predicted":3})", 0},  // f4ca0c6
           {"stdiff-kitti-64x512-wide",
            R"({"height":64,"width":512,"observed":3,"predicted":3,"block_out_channels":[128,256,512,768,1024],"attention_head_dim":[null,32,64,192,256]})",
            0},  // adbb67d
           {"stdiff-kitti-64x512-mask",
            R"({"height":64,"width":512,"observed":3,"predicted":3,"block_out_channels":[128,256,512,768,1024],"attention_head_dim":[null,32,64,192,256],"in_channels":5,"out_channels":2,"autoregressive":false})",
            0},  // a60d477
           {"stdiff-kitti-64x512-history", R"({"height":64,"width":512,"observed":3,"predicted":3,"in_channels":4,"autoregressive":false})",
            0}},  // c892d93
      .levers = {{"predicted", 5, Shrink::one_less, "{} predicted frames instead of {}", "less time; shorter futures"}},
  };
  return kFamily;
}

}  // namespace plimsoll
