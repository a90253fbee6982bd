// diffusers HunyuanVideoTransformer3DModel: text to video.
#include "model/family.h"
#include "nn/ada_norm.h"
#include "nn/denoiser.h"
#include "nn/diffusers_attention.h"
#include "nn/diffusers_layers.h"
#include "nn/diffusers_rotary.h"
#include "nn/video_latents.h"
#include "ops/pointwise.h"
#include "ops/reduce.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

struct HunyuanVideoConfig {
  explicit HunyuanVideoConfig(const Config& c)
      : in_channels(c.size({"in_channels"}, 16)),
        out_channels(c.is_null("out_channels") ? in_channels : c.size({"out_channels"}, 16)),
        heads(c.size({"num_attention_heads"}, 24)),
        head_dim(c.size({"attention_head_dim"}, 128)),
        width(checked_mul(heads, head_dim)),
        num_layers(c.size({"num_layers"}, 20)),
        num_single_layers(c.size({"num_single_layers"}, 40)),
        num_refiner_layers(c.size({"num_refiner_layers"}, 2)),
        inner(static_cast<int64_t>(static_cast<double>(width) * c.number({"mlp_ratio"}, 4.0))),
        patch_size(c.size({"patch_size"}, 2)),
        patch_size_t(c.size({"patch_size_t"}, 1)),
        qk_norm(!c.find({"qk_norm"}) || rms_norm_or_none(c, "qk_norm")),
        guidance_embeds(c.flag({"guidance_embeds"}, true)),
        text_embed_dim(c.size({"text_embed_dim"}, 4096)),
        pooled_projection_dim(c.size({"pooled_projection_dim"}, 768)),
        rope_axes_dim(sizes_in(c, "rope_axes_dim", {16, 56, 56}, 3)) {
    require_rotary_axes(c, "rope_axes_dim", rope_axes_dim, "attention_head_dim", head_dim);
    if (inner <= 0) throw Error("[hunyuan_video] mlp_ratio leaves no feed-forward", "give a number above 0, usually 4.0");
    if (c.find({"image_condition_type"}))
      throw Error("[hunyuan_video] image_condition_type: images as a condition cannot be simulated", "leave it out");
  }
  AttentionSizes attention() const { return {.width = width, .heads = heads, .head_dim = head_dim, .qk_norm = qk_norm}; }
  PatchSize patch() const { return {patch_size_t, patch_size, patch_size}; }
  int64_t in_channels, out_channels, heads, head_dim, width, num_layers, num_single_layers, num_refiner_layers, inner, patch_size,
      patch_size_t;
  bool qk_norm, guidance_embeds;
  int64_t text_embed_dim, pooled_projection_dim;
  std::vector<int64_t> rope_axes_dim;
};

struct HunyuanVideoPatchEmbed : Module {
  HunyuanVideoPatchEmbed(Module& parent, std::string_view name, const HunyuanVideoConfig& c)
      : Module(parent, name), proj(*this, "proj", c.in_channels, c.width, c.patch()) {}
  Tensor operator()(const Tensor& latents) const {
    Forward here(*this);
    const Tensor hidden = proj(latents);         // (B, C, F, H, W)
    return transpose(flatten(hidden, 2), 1, 2);  // (B, S, C)
  }
  PatchConv3d proj;
};

// HunyuanVideoAdaNorm: two gates.
struct AdaNorm : Module {
  AdaNorm(Module& parent, std::string_view name, int64_t width)
      : Module(parent, name), linear(*this, "linear", width, checked_mul(2, width)) {}
  Tensors operator()(const Tensor& temb) const {
    Forward here(*this);
    const Tensors gates = chunk(linear(silu(temb)), 2, 1);
    return {unsqueeze(gates[0], 1), unsqueeze(gates[1], 1)};  // (B, 1, C)
  }
  Linear linear;
};

struct RefinerBlock : Module {
  RefinerBlock(Module& parent, std::string_view name, const HunyuanVideoConfig& c) : Module(parent, name), config(c) {}

  Tensor operator()(const Tensor& hidden_in, const Tensor& temb, const Tensor& mask) const {
    Forward here(*this);
    const Tensor normed = norm1(hidden_in);  // (B, T, C)
    const Tensor attn_output = attend(attn, normed, {}, mask);
    const Tensors gate = norm_out(temb);
    Tensor hidden;
    {
      const Tensor gated = mul(attn_output, gate[0]);
      hidden = add(hidden_in, gated);
    }
    const Tensor ff_output = ff(norm2(hidden));
    {
      const Tensor gated = mul(ff_output, gate[1]);
      hidden = add(hidden, gated);
    }
    return hidden;
  }

  const HunyuanVideoConfig& config;
  LayerNorm norm1{*this, "norm1", config.width};
  DiffusersAttention attn{*this, "attn", {.width = config.width, .heads = config.heads, .head_dim = config.head_dim}};
  LayerNorm norm2{*this, "norm2", config.width};
  DiffusersFeedForward ff{*this, "ff", config.width, FeedForwardKind::linear_silu};
  AdaNorm norm_out{*this, "norm_out", config.width};
};

struct IndividualTokenRefiner : Module {
  IndividualTokenRefiner(Module& parent, std::string_view name, const HunyuanVideoConfig& c) : Module(parent, name) {
    for (int64_t i = 0; i < c.num_refiner_layers; ++i) refiner_blocks.add(c);
  }

  Tensor operator()(Tensor hidden, const Tensor& temb, const Tensor& mask) {
    Forward here(*this);
    const Tensor keep = nondiff("_to_copy", mask, DType::bool_);  // (B, T)
    const int64_t tokens = mask.size(1);
    const Tensor columns = filled(tape(), "repeat", {mask.size(0), 1, tokens, tokens}, DType::bool_);
    const Tensor pairs = compare("bitwise_and", columns, transpose(columns, 2, 3));
    for (RefinerBlock& block : refiner_blocks) hidden = block(hidden, temb, pairs);
    return hidden;
  }

  ModuleList<RefinerBlock> refiner_blocks{*this, "refiner_blocks"};
};

// HunyuanVideoTokenRefiner: text states through a few blocks of their own.
struct TokenRefiner : Module {
  TokenRefiner(Module& parent, std::string_view name, const HunyuanVideoConfig& c) : Module(parent, name), config(c) {}

  Tensor operator()(const Tensor& text, const Tensor& timestep, const Tensor& mask) {
    Forward here(*this);
    const Tensor mask_float = unsqueeze(to(mask, DType::float32), -1);  // (B, T, 1)
    Tensor pooled;
    {
      Tensor total = mul(text, mask_float);
      total = sum(total, {1}, false);
      const Tensor count = sum(mask_float, {1}, false);
      pooled = div(total, count);  // (B, text width)
    }
    pooled = to(pooled, text.dtype());
    const Tensor temb = time_text_embed(timestep, {}, pooled);
    const Tensor hidden = proj_in(text);
    return token_refiner(hidden, temb, mask);
  }

  const HunyuanVideoConfig& config;
  TimestepTextEmbeddings time_text_embed{*this, "time_text_embed", config.width, config.text_embed_dim, false};
  Linear proj_in{*this, "proj_in", config.text_embed_dim, config.width};
  IndividualTokenRefiner token_refiner{*this, "token_refiner", config};
};

// HunyuanVideoConditionEmbedding
struct ConditionEmbedding : Module {
  ConditionEmbedding(Module& parent, std::string_view name, const HunyuanVideoConfig& c)
      : Module(parent, name),
        config(c),
        guidance_embedder(c.guidance_embeds ? std::make_unique<TimestepEmbedding>(*this, "guidance_embedder", 256, c.width) : nullptr) {}

  Tensor operator()(const Tensor& timestep, const Tensor& pooled, const Tensor& guidance) const {
    Forward here(*this);
    const Tensor timesteps_proj = time_proj(timestep);
    const Tensor timesteps_emb = timestep_embedder(to(timesteps_proj, pooled.dtype()));
    const Tensor projections = text_embedder(pooled);
    if (!guidance_embedder) return add(timesteps_emb, projections);
    const Tensor guidance_proj = time_proj(guidance);
    const Tensor guidance_emb = (*guidance_embedder)(to(guidance_proj, pooled.dtype()));
    const Tensor both = add(timesteps_emb, guidance_emb);
    return add(both, projections);
  }

  const HunyuanVideoConfig& config;
  Timesteps time_proj{*this, "time_proj", 256};
  TimestepEmbedding timestep_embedder{*this, "timestep_embedder", 256, config.width};
  TextProjection text_embedder{*this, "text_embedder", config.pooled_projection_dim, config.width};
  std::unique_ptr<TimestepEmbedding> guidance_embedder;
};

struct RotaryPosEmbed : Module {
  RotaryPosEmbed(Module& parent, std::string_view name, const HunyuanVideoConfig& c) : Module(parent, name), axes_dim(c.rope_axes_dim) {}

  CosSin operator()(const Dims& grid_sizes) const {
    Forward here(*this);
    Tensors axes, views;
    for (int i = 0; i < 3; ++i) axes.push_back(arange(tape(), grid_sizes[i], DType::float32));
    for (int i = 0; i < 3; ++i) {
      Dims shape{1, 1, 1};
      shape[i] = grid_sizes[i];
      views.push_back(expand(view(axes[static_cast<size_t>(i)], shape), grid_sizes));
    }
    const Tensor grid = stack(views, 0);  // (3, F, H, W)
    Tensors cosines, sines;
    for (int64_t i = 0; i < 3; ++i) {
      const CosSin tables = get_1d_rotary_pos_embed(axes_dim[static_cast<size_t>(i)], view(select(grid, 0, i), {-1}), DType::float32);
      cosines.push_back(tables.cos);
      sines.push_back(tables.sin);
    }
    const Tensor cosine = cat(cosines, 1);
    return {cosine, cat(sines, 1)};
  }

  std::vector<int64_t> axes_dim;
};

// HunyuanVideoAttnProcessor2_0: the image before the text. Without projections of the text's own, both are one stream whose image is
// turned.
Tensors hunyuan_video_attention(const DiffusersAttention& attn, const Tensor& image, const Tensor& text, const CosSin& rotary,
                                const Tensor& mask) {
  Forward here(attn);
  const int64_t text_tokens = text.size(1);
  Tensor hidden = attn.add_q_proj ? image : cat({image, text}, 1);
  Tensor query = attn.to_q(hidden), key = attn.to_k(hidden), value = attn.to_v(hidden);
  query = unflatten_heads(query, attn.head_dim);
  key = unflatten_heads(key, attn.head_dim);
  value = unflatten_heads(value, attn.head_dim);
  if (attn.norm_q) query = (*attn.norm_q)(query);
  if (attn.norm_k) key = (*attn.norm_k)(key);
  Tensor encoder_query, encoder_key, encoder_value;
  if (attn.add_q_proj) {
    query = apply_rotary_emb(query, rotary);
    key = apply_rotary_emb(key, rotary);
    encoder_query = (*attn.add_q_proj)(text);
    encoder_key = (*attn.add_k_proj)(text);
    encoder_value = (*attn.add_v_proj)(text);
    encoder_query = unflatten_heads(encoder_query, attn.head_dim);
    encoder_key = unflatten_heads(encoder_key, attn.head_dim);
    encoder_value = unflatten_heads(encoder_value, attn.head_dim);
    if (attn.norm_added_q) encoder_query = (*attn.norm_added_q)(encoder_query);
    if (attn.norm_added_k) encoder_key = (*attn.norm_added_k)(encoder_key);
    query = cat({query, encoder_query}, 1);
    key = cat({key, encoder_key}, 1);
    value = cat({value, encoder_value}, 1);
  } else {
    const auto turn_image = [&](const Tensor& x) {
      const Tensor turned = apply_rotary_emb(slice(x, 1, 0, x.size(1) - text_tokens), rotary);
      return cat({turned, slice(x, 1, x.size(1) - text_tokens, x.size(1))}, 1);
    };
    query = turn_image(query);
    key = turn_image(key);
  }
  hidden = dispatch_attention(query, key, value, mask);  // (B, S + T, H, D)
  hidden = flatten(hidden, 2, 3);
  hidden = to(hidden, query.dtype());
  const Tensor image_part = slice(hidden, 1, 0, hidden.size(1) - text_tokens);
  Tensor encoder = slice(hidden, 1, hidden.size(1) - text_tokens, hidden.size(1));
  hidden = image_part;
  if (!attn.add_q_proj) return {hidden, encoder};
  hidden = attn.project_out(hidden);
  encoder = (*attn.to_add_out)(encoder);
  return {hidden, encoder};
}

struct HunyuanVideoTransformerBlock : Module {
  HunyuanVideoTransformerBlock(Module& parent, std::string_view name, const HunyuanVideoConfig& c) : Module(parent, name), config(c) {}

  static AttentionSizes joint(const HunyuanVideoConfig& c) {
    AttentionSizes sizes = c.attention();
    sizes.joint = true;
    return sizes;
  }

  Tensors operator()(const Tensor& hidden_in, const Tensor& encoder_in, const Tensor& temb, const CosSin& rotary,
                     const Tensor& mask) const {
    Forward here(*this);
    Tensors image = norm1(hidden_in, temb), text = norm1_context(encoder_in, temb);  // {x, gate, shift, scale, gate}
    const Tensors attended = hunyuan_video_attention(attn, image[0], text[0], rotary, mask);
    Tensor hidden = gated(hidden_in, attended[0], unsqueeze(image[1], 1));
    Tensor encoder = gated(encoder_in, attended[1], unsqueeze(text[1], 1));
    image[0] = norm2(hidden);
    text[0] = norm2_context(encoder);
    image[0] = modulate(image[0], image[3], image[2]);
    text[0] = modulate(text[0], text[3], text[2]);
    const Tensor ff_output = ff(image[0]), context_ff_output = ff_context(text[0]);
    hidden = gated(hidden, unsqueeze(image[4], 1), ff_output);
    encoder = gated(encoder, unsqueeze(text[4], 1), context_ff_output);
    return {hidden, encoder};
  }

  static Tensor gated(const Tensor& x, const Tensor& a, const Tensor& b) {
    const Tensor product = mul(a, b);
    return add(x, product);
  }

  const HunyuanVideoConfig& config;
  AdaLayerNormZero norm1{*this, "norm1", config.width};
  AdaLayerNormZero norm1_context{*this, "norm1_context", config.width};
  DiffusersAttention attn{*this, "attn", joint(config)};
  LayerNorm norm2{*this, "norm2", config.width, false};
  DiffusersFeedForward ff{*this, "ff", config.width, FeedForwardKind::gelu, config.inner};
  LayerNorm norm2_context{*this, "norm2_context", config.width, false};
  DiffusersFeedForward ff_context{*this, "ff_context", config.width, FeedForwardKind::gelu, config.inner};
};

struct HunyuanVideoSingleTransformerBlock : Module {
  HunyuanVideoSingleTransformerBlock(Module& parent, std::string_view name, const HunyuanVideoConfig& c)
      : Module(parent, name), config(c) {}

  static AttentionSizes single(const HunyuanVideoConfig& c) {
    AttentionSizes sizes = c.attention();
    sizes.out = false;
    return sizes;
  }

  Tensors operator()(const Tensor& hidden_in, const Tensor& encoder_in, const Tensor& temb, const CosSin& rotary,
                     const Tensor& mask) const {
    Forward here(*this);
    const int64_t text = encoder_in.size(1);
    const Tensor residual = cat({hidden_in, encoder_in}, 1);  // (B, S + T, C)
    const auto image_part = [text](const Tensor& x) { return slice(x, 1, 0, x.size(1) - text); };
    const auto text_part = [text](const Tensor& x) { return slice(x, 1, x.size(1) - text, x.size(1)); };
    const Tensors normed = norm(residual, temb);                 // {x, gate}
    const Tensor mlp_hidden_states = gelu(proj_mlp(normed[0]));  // (B, S + T, inner)
    const Tensor image = image_part(normed[0]), context = text_part(normed[0]);
    Tensors attended = hunyuan_video_attention(attn, image, context, rotary, mask);
    attended[0] = cat(attended, 1);
    Tensor hidden = cat({attended[0], mlp_hidden_states}, 2);
    hidden = mul(unsqueeze(normed[1], 1), proj_out(hidden));
    hidden = add(hidden, residual);
    const Tensor out = image_part(hidden);
    return {out, text_part(hidden)};
  }

  const HunyuanVideoConfig& config;
  DiffusersAttention attn{*this, "attn", single(config)};
  AdaLayerNormZero norm{*this, "norm", config.width, 3};
  Linear proj_mlp{*this, "proj_mlp", config.width, config.inner};
  Linear proj_out{*this, "proj_out", checked_add(config.width, config.inner), config.width};
};

class HunyuanVideoTransformer3DModel : public Denoiser {
 public:
  HunyuanVideoTransformer3DModel(Module& parent, std::string_view name, const Config& config) : Denoiser(parent, name), config_(config) {}

  Dims latent_sizes(int64_t samples, const Canvas& canvas) const override {
    return video_latent_sizes("hunyuan_video", samples, config_.in_channels, canvas, config_.patch());
  }
  Dims target_sizes(int64_t samples, const Canvas& canvas) const override {
    return video_latent_sizes("hunyuan_video", samples, config_.out_channels, canvas, config_.patch());
  }

  // text states, their mask, pooled text, guidance
  Conditions conditions(int64_t samples, const Canvas& canvas, DType dtype) override {
    const int64_t text = canvas.text_tokens ? canvas.text_tokens : 256;
    Conditions out{{{samples, text, config_.text_embed_dim}, dtype},
                   {{samples, text}, DType::int64},
                   {{samples, config_.pooled_projection_dim}, dtype}};
    if (config_.guidance_embeds) out.push_back({{samples}, DType::float32, Condition::Kind::guidance});
    return out;
  }

  Tensor predict(const Tensor& latents, const Tensor& timestep, const Tensors& c) override {
    Forward here(*this);
    const int64_t batch = latents.size(0), p = config_.patch_size, p_t = config_.patch_size_t;
    const Dims grid{latents.size(2) / p_t, latents.size(3) / p, latents.size(4) / p};
    const CosSin rotary = rope_(grid);
    const Tensor temb = time_text_embed_(timestep, c[2], config_.guidance_embeds ? c[3] : Tensor());
    Tensor hidden = x_embedder_(latents);                      // (B, S, C)
    Tensor encoder = context_embedder_(c[0], timestep, c[1]);  // (B, T, C)
    const int64_t tokens = hidden.size(1) + encoder.size(1);
    Tensor mask = filled(tape(), "ones", {batch, tokens}, DType::bool_);
    const Tensor text_length = filled(tape(), "sum", {batch}, DType::int32);
    const Tensor length = nondiff("add", text_length, DType::int32);
    const Tensor indices = arange(tape(), tokens);
    const Tensor beyond = compare("ge", unsqueeze(indices, 0), unsqueeze(length, 1));  // (B, S + T)
    mask = masked_fill(mask, beyond);
    mask = unsqueeze(unsqueeze(mask, 1), 1);  // (B, 1, 1, S + T)
    run(transformer_blocks_, hidden, encoder, temb, rotary, mask);
    run(single_transformer_blocks_, hidden, encoder, temb, rotary, mask);
    hidden = norm_out_(hidden, temb);
    hidden = proj_out_(hidden);
    hidden = view(hidden, {batch, grid[0], grid[1], grid[2], -1, p_t, p, p});
    hidden = permute(hidden, {0, 4, 1, 5, 2, 6, 3, 7});
    return flatten(flatten(flatten(hidden, 6, 7), 4, 5), 2, 3);
  }

 private:
  Module& add_blocks() {
    for (int64_t i = 0; i < config_.num_layers; ++i) transformer_blocks_.add(config_);
    return *this;
  }
  Module& add_single_blocks() {
    for (int64_t i = 0; i < config_.num_single_layers; ++i) single_transformer_blocks_.add(config_);
    return *this;
  }

  template <class Block>
  static void run(ModuleList<Block>& blocks, Tensor& hidden, Tensor& encoder, const Tensor& temb, const CosSin& rotary,
                  const Tensor& mask) {
    for (Block& block : blocks) {
      const auto call = [&block, rotary, mask](const Tensors& in) { return block(in[0], in[1], in[2], rotary, mask); };
      Tensors out = run_block(block, call, Tensors{hidden, encoder, temb});
      hidden = std::move(out[0]);
      encoder = std::move(out[1]);
    }
  }

  HunyuanVideoConfig config_;
  HunyuanVideoPatchEmbed x_embedder_{*this, "x_embedder", config_};
  TokenRefiner context_embedder_{*this, "context_embedder", config_};
  ConditionEmbedding time_text_embed_{*this, "time_text_embed", config_};
  RotaryPosEmbed rope_{*this, "rope", config_};
  ModuleList<HunyuanVideoTransformerBlock> transformer_blocks_{*this, "transformer_blocks"};
  ModuleList<HunyuanVideoSingleTransformerBlock> single_transformer_blocks_{add_blocks(), "single_transformer_blocks"};
  AdaLayerNormContinuous norm_out_{add_single_blocks(), "norm_out", config_.width, config_.width};
  Linear proj_out_{*this, "proj_out", config_.width,
                   (config_.patch_size_t * config_.patch_size * config_.patch_size * config_.out_channels)};
};

std::unique_ptr<Model> make_hunyuan_video(Build& build, const Config& config) {
  return make_training_of<HunyuanVideoTransformer3DModel>(build, config);
}

}  // namespace

const Family& hunyuan_video_family() {
  static const Family kFamily{
      .name = "hunyuan_video",
      .library = "diffusers",
      .models = {{"hunyuan_video", {"HunyuanVideoTransformer3DModel"}, InputKind::own, 512, make_hunyuan_video}},
      .presets = {{"hunyuan-video", R"({"height":544,"width":960,"frames":61})", 544}},
      .levers = {{"frames", 1, Shrink::half_the_frames, "{} frames instead of {}", "less time; shorter videos"}},
  };
  return kFamily;
}

}  // namespace plimsoll
