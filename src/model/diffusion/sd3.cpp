// diffusers SD3Transformer2DModel: Stable Diffusion 3 and 3.5.
#include <algorithm>

#include "model/family.h"
#include "nn/ada_norm.h"
#include "nn/denoiser.h"
#include "nn/diffusers_attention.h"
#include "nn/diffusers_layers.h"
#include "nn/diffusers_patches.h"
#include "ops/attention.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

struct SD3Config {
  explicit SD3Config(const Config& c)
      : patch_size(c.size({"patch_size"}, 2)),
        in_channels(c.size({"in_channels"}, 16)),
        out_channels(c.is_null("out_channels") ? in_channels : c.size({"out_channels"}, 16)),
        num_layers(c.size({"num_layers"}, 18)),
        attention_head_dim(c.size({"attention_head_dim"}, 64)),
        num_attention_heads(c.size({"num_attention_heads"}, 18)),
        joint_attention_dim(c.size({"joint_attention_dim"}, 4096)),
        caption_projection_dim(c.size({"caption_projection_dim"}, 1152)),
        pooled_projection_dim(c.size({"pooled_projection_dim"}, 2048)),
        width(checked_mul(num_attention_heads, attention_head_dim)),
        patches{.sample_size = c.size({"sample_size"}, 128),
                .patch = patch_size,
                .channels = in_channels,
                .width = width,
                .max_size = c.size({"pos_embed_max_size"}, 96)},
        dual_attention_layers(indices_in(c, "dual_attention_layers")),
        qk_norm(rms_norm_or_none(c, "qk_norm")) {
    if (caption_projection_dim != width)
      throw Error("[sd3] caption_projection_dim " + std::to_string(caption_projection_dim) + ", but the blocks are " +
                      std::to_string(width) + " wide",
                  "make it num_attention_heads x attention_head_dim");
  }
  bool is_dual(int64_t layer) const {
    return std::find(dual_attention_layers.begin(), dual_attention_layers.end(), layer) != dual_attention_layers.end();
  }
  int64_t patch_size, in_channels, out_channels, num_layers, attention_head_dim, num_attention_heads, joint_attention_dim,
      caption_projection_dim, pooled_projection_dim, width;
  PatchEmbedSizes patches;
  std::vector<int64_t> dual_attention_layers;
  bool qk_norm;
};

AttentionSizes attention_sizes(const SD3Config& c) {
  return {.width = c.width, .heads = c.num_attention_heads, .head_dim = c.attention_head_dim, .qk_norm = c.qk_norm};
}

// JointAttnProcessor2_0: the image before the text. Without a text, one result.
Tensors sd3_attention(const DiffusersAttention& attn, const Tensor& hidden_in, const Tensor& text) {
  Forward here(attn);
  const auto heads_first = [&](const Tensor& x) { return transpose(view(x, {x.size(0), -1, attn.heads, attn.head_dim}), 1, 2); };
  Tensor query = attn.to_q(hidden_in), key = attn.to_k(hidden_in), value = attn.to_v(hidden_in);  // (B, S, C)
  query = heads_first(query);                                                                     // (B, H, S, D)
  key = heads_first(key);
  value = heads_first(value);
  if (attn.norm_q) query = (*attn.norm_q)(query);
  if (attn.norm_k) key = (*attn.norm_k)(key);
  Tensor text_query, text_key, text_value;
  if (text) {
    text_query = (*attn.add_q_proj)(text);  // (B, T, C)
    text_key = (*attn.add_k_proj)(text);
    text_value = (*attn.add_v_proj)(text);
    text_query = heads_first(text_query);  // (B, H, T, D)
    text_key = heads_first(text_key);
    text_value = heads_first(text_value);
    if (attn.norm_added_q) text_query = (*attn.norm_added_q)(text_query);
    if (attn.norm_added_k) text_key = (*attn.norm_added_k)(text_key);
    query = cat({query, text_query}, 2);  // (B, H, S + T, D)
    key = cat({key, text_key}, 2);
    value = cat({value, text_value}, 2);
  }
  Tensor hidden = scaled_dot_product_attention(query, key, value, {});
  hidden = reshape(transpose(hidden, 1, 2), {hidden.size(0), -1, attn.heads * attn.head_dim});  // (B, S + T, C)
  hidden = to(hidden, query.dtype());
  if (!text) return {attn.project_out(hidden)};
  const Tensor image_part = slice(hidden, 1, 0, hidden_in.size(1));
  Tensor encoder = slice(hidden, 1, hidden_in.size(1), hidden.size(1));
  hidden = image_part;
  if (attn.to_add_out) encoder = (*attn.to_add_out)(encoder);
  hidden = attn.project_out(hidden);
  return {hidden, encoder};
}

struct JointTransformerBlock : Module {
  JointTransformerBlock(Module& parent, std::string_view name, const SD3Config& c, bool dual, bool is_last)
      : Module(parent, name), norm1(*this, "norm1", c.width, dual ? 9 : 6) {
    AttentionSizes joint = attention_sizes(c);
    joint.joint = true;
    joint.joint_out = !is_last;
    if (is_last)
      last_norm1_context = std::make_unique<AdaLayerNormContinuous>(*this, "norm1_context", c.width, c.width);
    else
      norm1_context = std::make_unique<AdaLayerNormZero>(*this, "norm1_context", c.width);
    attn = std::make_unique<DiffusersAttention>(*this, "attn", joint);
    if (dual) attn2 = std::make_unique<DiffusersAttention>(*this, "attn2", attention_sizes(c));
    norm2 = std::make_unique<LayerNorm>(*this, "norm2", c.width, false);
    ff = std::make_unique<DiffusersFeedForward>(*this, "ff", c.width);
    if (is_last) return;
    norm2_context = std::make_unique<LayerNorm>(*this, "norm2_context", c.width, false);
    ff_context = std::make_unique<DiffusersFeedForward>(*this, "ff_context", c.width);
  }

  // {text, image}; the last block has no text.
  Tensors operator()(const Tensor& hidden_in, const Tensor& encoder_in, const Tensor& temb) const {
    Forward here(*this);
    Tensors image = norm1(hidden_in, temb), text;
    if (norm1_context)
      text = (*norm1_context)(encoder_in, temb);
    else
      text = {(*last_norm1_context)(encoder_in, temb)};
    Tensors attended = sd3_attention(*attn, image[0], text[0]);
    attended[0] = mul(unsqueeze(image[1], 1), attended[0]);
    Tensor hidden = add(hidden_in, attended[0]);  // (B, S, C)
    Tensor attn_output2;
    if (attn2) {
      attn_output2 = sd3_attention(*attn2, image[5], {})[0];
      attn_output2 = mul(unsqueeze(image[6], 1), attn_output2);
      hidden = add(hidden, attn_output2);
    }
    image[0] = (*norm2)(hidden);
    image[0] = modulate(image[0], image[3], image[2]);
    Tensor ff_output = (*ff)(image[0]);
    ff_output = mul(unsqueeze(image[4], 1), ff_output);
    hidden = add(hidden, ff_output);
    if (!ff_context) return {{}, hidden};
    attended[1] = mul(unsqueeze(text[1], 1), attended[1]);
    Tensor encoder = add(encoder_in, attended[1]);  // (B, T, C)
    text[0] = (*norm2_context)(encoder);
    text[0] = modulate(text[0], text[3], text[2]);
    const Tensor context_ff_output = (*ff_context)(text[0]);
    {
      const Tensor gated = mul(unsqueeze(text[4], 1), context_ff_output);
      encoder = add(encoder, gated);
    }
    return {encoder, hidden};
  }

  AdaLayerNormZero norm1;
  std::unique_ptr<AdaLayerNormZero> norm1_context;
  std::unique_ptr<AdaLayerNormContinuous> last_norm1_context;
  std::unique_ptr<DiffusersAttention> attn, attn2;
  std::unique_ptr<LayerNorm> norm2, norm2_context;
  std::unique_ptr<DiffusersFeedForward> ff, ff_context;
};

class SD3Transformer2DModel : public Denoiser {
 public:
  SD3Transformer2DModel(Module& parent, std::string_view name, const Config& config) : Denoiser(parent, name), config_(config) {}

  Dims latent_sizes(int64_t samples, const Canvas& c) const override { return image_latent_sizes("sd3", samples, c, config_.patches); }
  Dims target_sizes(int64_t samples, const Canvas& canvas) const override {
    Dims sizes = latent_sizes(samples, canvas);
    sizes[1] = config_.out_channels;
    return sizes;
  }

  // text states (two CLIPs' 77 tokens and T5's 256) and pooled texts
  Conditions conditions(int64_t samples, const Canvas& canvas, DType dtype) override {
    const int64_t text = canvas.text_tokens ? canvas.text_tokens : 333;
    return {{{samples, text, config_.joint_attention_dim}, dtype}, {{samples, config_.pooled_projection_dim}, dtype}};
  }

  Tensor predict(const Tensor& latents, const Tensor& timestep, const Tensors& c) override {
    Forward here(*this);
    Tensor hidden = pos_embed_(latents);  // (B, S, C)
    hidden = contiguous(hidden);
    const Tensor temb = time_text_embed_(timestep, {}, c[1]);  // (B, C)
    Tensor encoder = context_embedder_(c[0]);                  // (B, T, C)
    for (JointTransformerBlock& block : transformer_blocks_) {
      const auto run = [&block](const Tensors& in) { return block(in[0], in[1], in[2]); };
      Tensors out = run_block(block, run, Tensors{hidden, encoder, temb});
      encoder = std::move(out[0]);
      hidden = std::move(out[1]);
    }
    hidden = norm_out_(hidden, temb);
    hidden = proj_out_(hidden);  // (B, S, p p C)
    return unpatchify(hidden, latents.size(2) / config_.patch_size, latents.size(3) / config_.patch_size, config_.patch_size);
  }

 private:
  Module& add_blocks() {
    for (int64_t i = 0; i < config_.num_layers; ++i) transformer_blocks_.add(config_, config_.is_dual(i), i == config_.num_layers - 1);
    return *this;
  }

  SD3Config config_;
  PatchEmbed pos_embed_{*this, "pos_embed", config_.patches};
  TimestepTextEmbeddings time_text_embed_{*this, "time_text_embed", config_.width, config_.pooled_projection_dim, false};
  Linear context_embedder_{*this, "context_embedder", config_.joint_attention_dim, config_.caption_projection_dim};
  ModuleList<JointTransformerBlock> transformer_blocks_{*this, "transformer_blocks"};
  AdaLayerNormContinuous norm_out_{add_blocks(), "norm_out", config_.width, config_.width};
  Linear proj_out_{*this, "proj_out", config_.width, (config_.patch_size * config_.patch_size * config_.out_channels)};
};

std::unique_ptr<Model> make_sd3(Build& build, const Config& config) { return make_training_of<SD3Transformer2DModel>(build, config); }

}  // namespace

const Family& sd3_family() {
  static const Family kFamily{
      .name = "sd3",
      .library = "diffusers",
      .models = {{"sd3", {"SD3Transformer2DModel"}, InputKind::own, 1024, make_sd3}},
      .presets =
          {{"sd3-medium", R"({"num_layers":24,"num_attention_heads":24,"caption_projection_dim":1536,"pos_embed_max_size":192})", 1024},
           {"sd3.5-medium",
            R"({"num_layers":24,"num_attention_heads":24,"caption_projection_dim":1536,"pos_embed_max_size":384,"qk_norm":"rms_norm","dual_attention_layers":[0,1,2,3,4,5,6,7,8,9,10,11,12]})",
            1024},
           {"sd3.5-large",
            R"({"num_layers":38,"num_attention_heads":38,"caption_projection_dim":2432,"pos_embed_max_size":192,"qk_norm":"rms_norm"})",
            1024}},
  };
  return kFamily;
}

}  // namespace plimsoll
