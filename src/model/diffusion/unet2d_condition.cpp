// diffusers 0.40 models/unets/unet_2d_condition.py: the denoiser of Stable Diffusion 1.x, 2.x and XL. Latents are an eighth of the
// image's side.
#include <nlohmann/json.hpp>

#include "job/config_list.h"
#include "model/family.h"
#include "nn/denoiser.h"
#include "nn/diffusers_layers.h"
#include "nn/transformer.h"
#include "nn/unet_blocks.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"
#include "util/text.h"

namespace plimsoll {

namespace {

constexpr int64_t kPixelsPerLatent = 8, kTextTokens = 77;  // the autoencoder's scale, CLIP's context
constexpr int64_t kTimeIds = 6;                            // SDXL: original size, crop corner, target size

struct UNetConfig {
  explicit UNetConfig(const Config& c)
      : in_channels(c.size({"in_channels"}, 4)),
        out_channels(c.size({"out_channels"}, 4)),
        down_block_types(
            name_list(c, "down_block_types", {"CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"})),
        up_block_types(name_list(c, "up_block_types", {"UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"})),
        block_out_channels(size_list(c, "block_out_channels", {320, 640, 1280, 1280})),
        layers_per_block(size_per_block(c, "layers_per_block", 2, blocks())),
        heads(size_per_block(c, "attention_head_dim", 8, blocks())),
        cross_attention_dim(size_per_block(c, "cross_attention_dim", 1280, blocks())),
        transformer_layers(size_per_block(c, "transformer_layers_per_block", 1, blocks())),
        only_cross_attention(flag_per_block(c, "only_cross_attention", false, blocks())),
        downsample_padding(c.integer({"downsample_padding"}, 1)),
        flip_sin_to_cos(c.flag({"flip_sin_to_cos"}, true)),
        addition_embed_type(c.text({"addition_embed_type"}, "")),
        addition_time_embed_dim(c.size({"addition_time_embed_dim"}, 256)),
        projection_input_dim(c.size({"projection_class_embeddings_input_dim"}, 2816)) {
    resnet.groups = c.size({"norm_num_groups"}, 32);
    resnet.act = c.text({"act_fn"}, "silu");
    resnet.dropout = probability(c, "dropout", 0.0);
    resnet.temb_channels = 4 * block_out_channels[0];
    transformer.groups = resnet.groups;
    transformer.use_linear_projection = c.flag({"use_linear_projection"}, false);
    transformer.upcast_attention = c.flag({"upcast_attention"}, false);
    transformer.xformers = uses_xformers(c);
    check(c);
  }

  size_t blocks() const { return block_out_channels.size(); }
  // What two text encoders give in one vector, beside sizes and crops.
  int64_t pooled_width() const { return projection_input_dim - kTimeIds * addition_time_embed_dim; }

  void check(const Config& c) {
    const auto fail = [&c](const std::string& what, const std::string& hint) { throw Error("[" + c.source() + "] " + what, hint); };
    for (const auto* types : {&down_block_types, &up_block_types})
      if (types->size() != blocks())
        fail(std::to_string(types->size()) + (types == &down_block_types ? " down_block_types for " : " up_block_types for ") +
                 std::to_string(blocks()) + " block_out_channels",
             "give as many of each");
    for (size_t i = 0; i < blocks(); ++i) {
      require_type("down_block_types", down_block_types[i], {"CrossAttnDownBlock2D", "DownBlock2D"});
      require_type("up_block_types", up_block_types[i], {"CrossAttnUpBlock2D", "UpBlock2D"});
      c.require_divides("attention_head_dim", heads[i], "block_out_channels", block_out_channels[i]);
    }
    require_type("mid_block_type", c.text({"mid_block_type"}, "UNetMidBlock2DCrossAttn"), {"UNetMidBlock2DCrossAttn"});
    const std::string shift = c.text({"resnet_time_scale_shift"}, "default");
    require_type("resnet_time_scale_shift", shift, {"default", "scale_shift"});
    resnet.scale_shift = shift == "scale_shift";
    if (!addition_embed_type.empty()) require_type("addition_embed_type", addition_embed_type, {"text_time"});
    if (addition_embed_type == "text_time" && pooled_width() < 1)
      fail("projection_class_embeddings_input_dim " + std::to_string(projection_input_dim) + " leaves nothing for the text beside " +
               std::to_string(kTimeIds) + " numbers of addition_time_embed_dim " + std::to_string(addition_time_embed_dim),
           "2816 and 256 are SDXL's");
    for (const char* key : {"class_embed_type", "num_class_embeds", "encoder_hid_dim", "encoder_hid_dim_type", "time_cond_proj_dim",
                            "timestep_post_act", "time_embedding_act_fn", "time_embedding_dim", "reverse_transformer_layers_per_block",
                            "num_attention_heads", "cross_attention_norm"})
      if (c.find({key})) fail(std::string(key) + " is not modelled", std::string("leave ") + key + " out");
    for (const char* key : {"dual_cross_attention", "center_input_sample", "class_embeddings_concat", "resnet_skip_time_act"})
      if (c.flag({key}, false)) fail(std::string(key) + " is not modelled", std::string("leave ") + key + " out");
    if (c.size({"conv_in_kernel"}, 3) != 3 || c.size({"conv_out_kernel"}, 3) != 3)
      fail("conv_in_kernel and conv_out_kernel other than 3 are not modelled", "leave them out");
    require_type("time_embedding_type", c.text({"time_embedding_type"}, "positional"), {"positional"});
    require_type("attention_type", c.text({"attention_type"}, "default"), {"default"});
  }

  static void require_type(const char* key, const std::string& value, const std::vector<std::string>& known) {
    if (std::find(known.begin(), known.end(), value) == known.end())
      throw Error(std::string("[unet] ") + key + " '" + value + "' is not modelled", did_you_mean(value, known));
  }

  int64_t in_channels, out_channels;
  std::vector<std::string> down_block_types, up_block_types;
  std::vector<int64_t> block_out_channels, layers_per_block, heads, cross_attention_dim, transformer_layers;
  std::vector<bool> only_cross_attention;
  int64_t downsample_padding;
  bool flip_sin_to_cos;
  std::string addition_embed_type;
  int64_t addition_time_embed_dim, projection_input_dim;
  ResnetSettings resnet;            // but for its channels
  TransformerSettings transformer;  // but for its sizes
};

// What a block is made of: one transformer behind each residual block, or none.
struct BlockSettings {
  bool has_cross_attention = false, has_sampler = false;
  std::vector<ResnetSettings> resnets;
  TransformerSettings transformer;
  int64_t out_channels = 0, downsample_padding = 1;
};

TransformerSettings transformer_settings(const UNetConfig& c, size_t level) {
  TransformerSettings t = c.transformer;
  t.channels = c.block_out_channels[level];
  t.heads = c.heads[level];
  t.dim_head = t.channels / t.heads;
  t.layers = c.transformer_layers[level];
  t.cross_attention_dim = c.cross_attention_dim[level];
  t.only_cross_attention = c.only_cross_attention[level];
  return t;
}

ResnetSettings resnet_settings(const UNetConfig& c, int64_t in, int64_t out) {
  ResnetSettings r = c.resnet;
  r.in = in;
  r.out = out;
  return r;
}

// DownBlock2D and CrossAttnDownBlock2D
struct DownBlock : Module {
  DownBlock(Module& parent, std::string_view name, const BlockSettings& s) : Module(parent, name) {
    if (s.has_cross_attention) {
      attentions = std::make_unique<ModuleList<Transformer2DModel>>(*this, "attentions");
      for (size_t i = 0; i < s.resnets.size(); ++i) attentions->add(s.transformer);
    }
    resnets = std::make_unique<ModuleList<ResnetBlock2D>>(*this, "resnets");
    for (const ResnetSettings& r : s.resnets) resnets->add(r);
    if (!s.has_sampler) return;
    downsamplers = std::make_unique<ModuleList<Downsample2D>>(*this, "downsamplers");
    downsamplers->add(s.out_channels, s.downsample_padding);
  }

  // Every intermediate state, the last one included.
  Tensors operator()(const Tensor& x, const Tensor& temb, const Tensor& encoder) {
    Forward here(*this);
    Tensor hidden = x;
    Tensors output_states;
    for (size_t i = 0; i < resnets->size(); ++i) {
      hidden = run_resnet((*resnets)[i], hidden, temb);  // (N, C, H, W)
      if (attentions) hidden = (*attentions)[i](hidden, encoder);
      output_states.push_back(hidden);
    }
    if (downsamplers) {
      hidden = (*downsamplers)[0](hidden);  // (N, C, H / 2, W / 2)
      output_states.push_back(hidden);
    }
    return output_states;
  }

  std::unique_ptr<ModuleList<Transformer2DModel>> attentions;
  std::unique_ptr<ModuleList<ResnetBlock2D>> resnets;
  std::unique_ptr<ModuleList<Downsample2D>> downsamplers;
};

// UpBlock2D and CrossAttnUpBlock2D
struct UpBlock : Module {
  UpBlock(Module& parent, std::string_view name, const BlockSettings& s) : Module(parent, name) {
    if (s.has_cross_attention) {
      attentions = std::make_unique<ModuleList<Transformer2DModel>>(*this, "attentions");
      for (size_t i = 0; i < s.resnets.size(); ++i) attentions->add(s.transformer);
    }
    resnets = std::make_unique<ModuleList<ResnetBlock2D>>(*this, "resnets");
    for (const ResnetSettings& r : s.resnets) resnets->add(r);
    if (!s.has_sampler) return;
    upsamplers = std::make_unique<ModuleList<Upsample2D>>(*this, "upsamplers");
    upsamplers->add(s.out_channels);
  }

  // `skipped`: what the way down has left for this block, taken from its end. `next`: the size of what comes after it.
  Tensor operator()(const Tensor& x, const Tensor& temb, const Tensors& skipped, const Tensor& encoder, const Dims& next) {
    Forward here(*this);
    Tensor hidden = x;
    for (size_t i = 0; i < resnets->size(); ++i) {
      hidden = cat({hidden, skipped[skipped.size() - 1 - i]}, 1);
      hidden = run_resnet((*resnets)[i], hidden, temb);  // (N, C, H, W)
      if (attentions) hidden = (*attentions)[i](hidden, encoder);
    }
    if (upsamplers) hidden = (*upsamplers)[0](hidden, next[0], next[1]);
    return hidden;
  }

  std::unique_ptr<ModuleList<Transformer2DModel>> attentions;
  std::unique_ptr<ModuleList<ResnetBlock2D>> resnets;
  std::unique_ptr<ModuleList<Upsample2D>> upsamplers;
};

struct UNetMidBlock2DCrossAttn : Module {
  UNetMidBlock2DCrossAttn(Module& parent, std::string_view name, const UNetConfig& c) : Module(parent, name) {
    const int64_t channels = c.block_out_channels.back();
    TransformerSettings t = transformer_settings(c, c.blocks() - 1);
    t.only_cross_attention = false;
    attentions.add(t);
    for (int i = 0; i < 2; ++i) resnets.add(resnet_settings(c, channels, channels));
  }

  Tensor operator()(const Tensor& x, const Tensor& temb, const Tensor& encoder) {
    Forward here(*this);
    Tensor hidden = resnets[0](x, temb);  // (N, C, H, W), under no checkpoint
    hidden = attentions[0](hidden, encoder);
    hidden = run_resnet(resnets[1], hidden, temb);
    return hidden;
  }

  ModuleList<Transformer2DModel> attentions{*this, "attentions"};
  ModuleList<ResnetBlock2D> resnets{*this, "resnets"};
};

class UNet2DConditionModel : public Denoiser {
 public:
  UNet2DConditionModel(Module& parent, std::string_view name, const Config& c)
      : Denoiser(parent, name),
        config_(c),
        add_embedding_(config_.addition_embed_type.empty()
                           ? nullptr
                           : std::make_unique<TimestepEmbedding>(*this, "add_embedding", config_.projection_input_dim,
                                                                 *config_.resnet.temb_channels)) {}

  Dims latent_sizes(int64_t samples, const Canvas& canvas) const override { return image(samples, config_.in_channels, canvas); }
  Dims target_sizes(int64_t samples, const Canvas& canvas) const override { return image(samples, config_.out_channels, canvas); }

  // Text states; for SDXL also the pooled text and six numbers of sizes and crops.
  Conditions conditions(int64_t samples, const Canvas& canvas, DType dtype) override {
    const int64_t tokens = canvas.text_tokens ? canvas.text_tokens : kTextTokens;
    Conditions out{{{samples, tokens, config_.cross_attention_dim[0]}, dtype}};
    if (!add_embedding_) return out;
    out.push_back({{samples, config_.pooled_width()}, dtype});
    out.push_back({{samples, kTimeIds}, dtype, Condition::Kind::sizes});
    return out;
  }

  Tensor predict(const Tensor& latents, const Tensor& timestep, const Tensors& conditions) override {
    Forward here(*this);
    const Tensor& encoder = conditions[0];
    const Tensor t_emb = get_time_embed(latents, timestep);
    Tensor emb = time_embedding_(t_emb), aug_emb;  // (N, E)
    if (add_embedding_) {
      aug_emb = get_aug_embed(emb, conditions[1], conditions[2]);
      emb = add(emb, aug_emb);
    }
    Tensor sample = conv_in_(latents);  // (N, C, H, W)
    Tensors down_samples{sample}, res_samples;
    for (DownBlock& block : down_blocks_) {
      res_samples = block(sample, emb, encoder);
      sample = res_samples.back();
      down_samples.insert(down_samples.end(), res_samples.begin(), res_samples.end());
    }
    sample = mid_block_(sample, emb, encoder);
    for (UpBlock& block : up_blocks_) {
      const auto first = down_samples.end() - static_cast<std::ptrdiff_t>(block.resnets->size());
      res_samples.assign(first, down_samples.end());
      down_samples.erase(first, down_samples.end());
      sample = block(sample, emb, res_samples, encoder, next_size(sample, down_samples, latents));
    }
    sample = conv_norm_out_(sample);
    sample = activation(config_.resnet.act, sample);
    return conv_out_(sample);  // (N, out_channels, H, W)
  }

 private:
  Module& add_blocks() {
    const UNetConfig& c = config_;
    const size_t n = c.blocks();
    for (size_t i = 0; i < n; ++i) {
      BlockSettings s = block_settings(i, c.down_block_types[i] == "CrossAttnDownBlock2D", i + 1 < n);
      for (int64_t k = 0; k < c.layers_per_block[i]; ++k)
        s.resnets.push_back(resnet_settings(c, k == 0 ? c.block_out_channels[i == 0 ? 0 : i - 1] : s.out_channels, s.out_channels));
      down_blocks_.add(s);
    }
    for (size_t i = 0; i < n; ++i) {
      const size_t level = n - 1 - i;
      const int64_t before = c.block_out_channels[i == 0 ? level : level + 1], skipped = c.block_out_channels[level == 0 ? 0 : level - 1];
      BlockSettings s = block_settings(level, c.up_block_types[i] == "CrossAttnUpBlock2D", i + 1 < n);
      const int64_t layers = c.layers_per_block[level] + 1;
      for (int64_t k = 0; k < layers; ++k)
        s.resnets.push_back(
            resnet_settings(c, (k == 0 ? before : s.out_channels) + (k == layers - 1 ? skipped : s.out_channels), s.out_channels));
      up_blocks_.add(s);
    }
    return *this;
  }

  BlockSettings block_settings(size_t level, bool cross_attention, bool sampler) const {
    return {cross_attention,           sampler, {}, transformer_settings(config_, level), config_.block_out_channels[level],
            config_.downsample_padding};
  }

  static Dims image(int64_t samples, int64_t channels, const Canvas& canvas) {
    return {samples, channels, tokens_along("unet", "height", canvas.height, kPixelsPerLatent),
            tokens_along("unet", "width", canvas.width, kPixelsPerLatent)};
  }

  Tensor get_time_embed(const Tensor& sample, const Tensor& timestep) const {
    const Tensor t_emb = get_timestep_embedding(timestep, config_.block_out_channels[0], config_.flip_sin_to_cos);
    return to(t_emb, sample.dtype());
  }

  Tensor get_aug_embed(const Tensor& emb, const Tensor& text_embeds, const Tensor& time_ids) const {
    Tensor time_embeds = get_timestep_embedding(flatten(time_ids, 0), config_.addition_time_embed_dim, config_.flip_sin_to_cos);
    time_embeds = reshape(time_embeds, {text_embeds.size(0), -1});
    Tensor add_embeds = cat({text_embeds, time_embeds}, -1);
    add_embeds = to(add_embeds, emb.dtype());
    return (*add_embedding_)(add_embeds);  // (N, E)
  }

  // Twice the size, or that of the state on the way down where a side is not divisible often enough.
  Dims next_size(const Tensor& sample, const Tensors& down_samples, const Tensor& latents) const {
    const int64_t factor = int64_t{1} << (config_.blocks() - 1);
    if (down_samples.empty() || (latents.size(2) % factor == 0 && latents.size(3) % factor == 0))
      return {2 * sample.size(2), 2 * sample.size(3)};
    return {down_samples.back().size(2), down_samples.back().size(3)};
  }

  UNetConfig config_;
  Conv2d conv_in_{*this, "conv_in", config_.in_channels, config_.block_out_channels[0], {.kernel = 3, .padding = 1}};
  TimestepEmbedding time_embedding_{*this, "time_embedding", config_.block_out_channels[0], *config_.resnet.temb_channels,
                                    config_.resnet.act};
  std::unique_ptr<TimestepEmbedding> add_embedding_;
  ModuleList<DownBlock> down_blocks_{*this, "down_blocks"};
  ModuleList<UpBlock> up_blocks_{*this, "up_blocks"};
  UNetMidBlock2DCrossAttn mid_block_{add_blocks(), "mid_block", config_};
  GroupNorm conv_norm_out_{*this, "conv_norm_out", config_.resnet.groups, config_.block_out_channels[0]};
  Conv2d conv_out_{*this, "conv_out", config_.block_out_channels[0], config_.out_channels, {.kernel = 3, .padding = 1}};
};

std::unique_ptr<Denoiser> make_denoiser(Module& parent, std::string_view name, const Config& config) {
  return std::make_unique<UNet2DConditionModel>(parent, name, config);
}

std::unique_ptr<Model> make_unet2d_condition(Build& build, const Config& config) {
  return make_denoiser_training(build, config, make_denoiser);
}

}  // namespace

const Family& unet2d_condition_family() {
  static const Family kFamily{
      .name = "unet2d-condition",
      .library = "diffusers",
      .models = {{"unet2d-condition", {"UNet2DConditionModel"}, InputKind::own, 512, make_unet2d_condition}},
      .presets =
          {{"sd-1.5-unet", R"({"cross_attention_dim":768})", 512},
           {"sd-2.1-unet",
            R"({"cross_attention_dim":1024,"attention_head_dim":[5,10,20,20],"use_linear_projection":true,"upcast_attention":true})", 768},
           {"sdxl-unet",
            R"({"block_out_channels":[320,640,1280],"down_block_types":["DownBlock2D","CrossAttnDownBlock2D","CrossAttnDownBlock2D"],"up_block_types":["CrossAttnUpBlock2D","CrossAttnUpBlock2D","UpBlock2D"],"cross_attention_dim":2048,"attention_head_dim":[5,10,20],"transformer_layers_per_block":[1,2,10],"use_linear_projection":true,"addition_embed_type":"text_time","addition_time_embed_dim":256,"projection_class_embeddings_input_dim":2816})",
            1024}},
  };
  return kFamily;
}

}  // namespace plimsoll
