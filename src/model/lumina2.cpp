// diffusers Lumina2Transformer2DModel: text and image through refiners of their own, then together. Every caption is taken to fill its
// tokens.
#include "model/denoisers.h"
#include "nn/diffusers_layers.h"
#include "nn/diffusers_patches.h"
#include "nn/diffusers_rotary.h"
#include "ops/attention.h"
#include "ops/copy_slices.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

struct Lumina2Config {
  explicit Lumina2Config(const Config& c)
      : patches{.sample_size = c.size({"sample_size"}, 128), .patch = c.size({"patch_size"}, 2), .channels = c.size({"in_channels"}, 16)},
        out_channels(c.size({"out_channels"}, patches.channels)),
        width(c.size({"hidden_size"}, 2304)),
        time_width(std::min<int64_t>(width, 1024)),
        num_layers(c.size({"num_layers"}, 26)),
        num_refiner_layers(c.size({"num_refiner_layers"}, 2)),
        heads(c.size({"num_attention_heads"}, 24)),
        kv_heads(c.size({"num_kv_heads"}, 8)),
        cap_feat_dim(c.size({"cap_feat_dim"}, 1024)),
        axes_dim(sizes_in(c, "axes_dim_rope", {32, 32, 32}, 3)),
        axes_lens(sizes_in(c, "axes_lens", {300, 512, 512}, 3)) {
    c.require_divides("num_attention_heads", heads, "hidden_size", width);
    c.require_divides("num_kv_heads", kv_heads, "num_attention_heads", heads);
    head_dim = width / heads;
    require_rotary_axes(c, "axes_dim_rope", axes_dim, "hidden_size / num_attention_heads", head_dim);
    const int64_t multiple_of = c.size({"multiple_of"}, 256);
    const double factor = c.number({"ffn_dim_multiplier"}, 1.0);
    inner = static_cast<int64_t>(factor * static_cast<double>(checked_mul(4, width)));
    inner = (inner + multiple_of - 1) / multiple_of * multiple_of;
    if (inner <= 0) throw Error("[lumina2] ffn_dim_multiplier leaves no feed-forward", "give a number above 0, or null");
  }
  PatchEmbedSizes patches;
  int64_t out_channels, width, time_width, num_layers, num_refiner_layers, heads, kv_heads, cap_feat_dim;
  std::vector<int64_t> axes_dim, axes_lens;
  int64_t head_dim = 0, inner = 0;
};

// A product with complex numbers of twice the precision, (B, S, D / 2), seen as pairs of fp64. x: (B, S, H, D) in fp32. Saves the
// factors; backward makes their conjugates first, and its result fp32 again.
Tensor complex_product(const Tensor& x, const Tensor& factors) {
  Op op(x.tape(), "mul", {&x});
  Saved saved = op.save(factors);
  return op.finish(empty(x.tape(), x.sizes(), DType::float64), [saved = std::move(saved)](Tensors& g, Needs) {
    const Tensor grad = contiguous(g[0]);
    Tensor product;
    {
      const Tensor factors = saved.unpack();
      const Tensor conjugate = filled(factors.tape(), "clone", factors.sizes(), DType::float64);
      product = nondiff("mul", grad, DType::float64);
    }
    return Tensors{to(product, DType::float32)};
  });
}

// apply_rotary_emb with use_real=False. x: (B, S, H, D)
Tensor rotate(const Tensor& x, const Tensor& freqs) {
  const Tensor wide = to(x, DType::float32);
  const Tensor out = complex_product(wide, freqs);
  return to(out, x.dtype());
}

struct Lumina2Attention : Module {
  Lumina2Attention(Module& parent, std::string_view name, const Lumina2Config& c)
      : Module(parent, name),
        heads(c.heads),
        kv_heads(c.kv_heads),
        head_dim(c.head_dim),
        norm_q(*this, "norm_q", c.head_dim),
        norm_k(*this, "norm_k", c.head_dim),
        to_q(*this, "to_q", c.width, c.width, false),
        to_k(*this, "to_k", c.width, c.kv_heads * c.head_dim, false),
        to_v(*this, "to_v", c.width, c.kv_heads * c.head_dim, false),
        to_out(*this, "to_out") {
    to_out.add(c.width, c.width, false);
  }

  Tensor operator()(const Tensor& hidden_in, const Tensor& mask, const Tensor& freqs) {
    Forward here(*this);
    const int64_t batch = hidden_in.size(0);
    Tensor query = to_q(hidden_in), key = to_k(hidden_in), value = to_v(hidden_in);  // (B, S, C), (B, S, KV D)
    const DType dtype = query.dtype();
    query = view(query, {batch, -1, heads, head_dim});
    key = view(key, {batch, -1, kv_heads, head_dim});
    value = view(value, {batch, -1, kv_heads, head_dim});
    query = norm_q(query);
    key = norm_k(key);
    query = rotate(query, freqs);
    key = rotate(key, freqs);
    {
      const Tensor q = to(query, dtype), k = to(key, dtype);
      query = q;
      key = k;
    }
    key = repeat_heads(key);  // (B, S, H, D)
    value = repeat_heads(value);
    AttentionArgs args;
    if (mask) args.mask = view(mask.dtype() == DType::bool_ ? mask : nondiff("_to_copy", mask, DType::bool_), {batch, 1, 1, -1});
    query = transpose(query, 1, 2);  // (B, H, S, D)
    key = transpose(key, 1, 2);
    value = transpose(value, 1, 2);
    Tensor hidden = scaled_dot_product_attention(query, key, value, args);
    hidden = reshape(transpose(hidden, 1, 2), {batch, -1, heads * head_dim});
    hidden = to(hidden, query.dtype());
    hidden = to_out[0](hidden);
    return hidden;
  }

  Tensor repeat_heads(const Tensor& x) const {
    const Tensor copies = clone(expand(unsqueeze(x, 3), {x.size(0), x.size(1), kv_heads, heads / kv_heads, head_dim}));
    return flatten(copies, 2, 3);
  }

  int64_t heads, kv_heads, head_dim;
  DiffusersRMSNorm norm_q, norm_k;
  Linear to_q, to_k, to_v;
  ModuleList<Linear> to_out;
};

struct LuminaFeedForward : Module {
  LuminaFeedForward(Module& parent, std::string_view name, const Lumina2Config& c)
      : Module(parent, name),
        linear_1(*this, "linear_1", c.width, c.inner, false),
        linear_2(*this, "linear_2", c.inner, c.width, false),
        linear_3(*this, "linear_3", c.width, c.inner, false) {}

  Tensor operator()(const Tensor& x) const {
    Forward here(*this);
    Tensor product;
    {
      const Tensor gate = fp32_silu(linear_1(x)), value = linear_3(x);  // (B, S, inner)
      product = mul(gate, value);
    }
    return linear_2(product);
  }

  static Tensor fp32_silu(const Tensor& x) {
    const Tensor y = silu(to(x, DType::float32));
    return to(y, x.dtype());
  }

  Linear linear_1, linear_2, linear_3;
};

// LuminaRMSNormZero, or without modulation a plain norm.
struct FirstNorm : Module {
  FirstNorm(Module& parent, std::string_view name, const Lumina2Config& c)
      : Module(parent, name), linear(*this, "linear", c.time_width, checked_mul(4, c.width)), norm(*this, "norm", c.width) {}
  // {x, gate, scale, gate}
  Tensors operator()(const Tensor& x, const Tensor& temb) const {
    Forward here(*this);
    const Tensors part = chunk(linear(silu(temb)), 4, 1);
    const Tensor normed = norm(x);
    return {mul(normed, add_scalar(unsqueeze(part[0], 1))), part[1], part[2], part[3]};
  }
  Linear linear;
  DiffusersRMSNorm norm;
};

struct Lumina2TransformerBlock : Module {
  Lumina2TransformerBlock(Module& parent, std::string_view name, const Lumina2Config& c, bool modulation)
      : Module(parent, name),
        attn(*this, "attn", c),
        feed_forward(*this, "feed_forward", c),
        norm1(modulation ? std::make_unique<FirstNorm>(*this, "norm1", c) : nullptr),
        plain_norm1(modulation ? nullptr : std::make_unique<DiffusersRMSNorm>(*this, "norm1", c.width)),
        ffn_norm1(*this, "ffn_norm1", c.width),
        norm2(*this, "norm2", c.width),
        ffn_norm2(*this, "ffn_norm2", c.width) {}

  Tensor operator()(const Tensor& hidden_in, const Tensor& mask, const Tensor& freqs, const Tensor& temb) {
    Forward here(*this);
    if (!norm1) return unmodulated(hidden_in, mask, freqs);
    const Tensors normed = (*norm1)(hidden_in, temb);
    const Tensor attn_output = attn(normed[0], mask, freqs);
    Tensor hidden = gated(hidden_in, normed[1], norm2, attn_output);
    Tensor mlp_output;
    {
      Tensor scaled = ffn_norm1(hidden);
      scaled = mul(scaled, add_scalar(unsqueeze(normed[2], 1)));
      mlp_output = feed_forward(scaled);
    }
    hidden = gated(hidden, normed[3], ffn_norm2, mlp_output);
    return hidden;
  }

  Tensor unmodulated(const Tensor& hidden_in, const Tensor& mask, const Tensor& freqs) {
    const Tensor normed = (*plain_norm1)(hidden_in);
    const Tensor attn_output = attn(normed, mask, freqs);
    Tensor hidden = add(hidden_in, norm2(attn_output));
    const Tensor mlp_output = feed_forward(ffn_norm1(hidden));
    hidden = add(hidden, ffn_norm2(mlp_output));
    return hidden;
  }

  // x + tanh(gate) * norm(y)
  static Tensor gated(const Tensor& x, const Tensor& gate, const DiffusersRMSNorm& norm, const Tensor& y) {
    Tensor product;
    {
      const Tensor factor = tanh(unsqueeze(gate, 1)), normed = norm(y);
      product = mul(factor, normed);
    }
    return add(x, product);
  }

  Lumina2Attention attn;
  LuminaFeedForward feed_forward;
  std::unique_ptr<FirstNorm> norm1;
  std::unique_ptr<DiffusersRMSNorm> plain_norm1;
  DiffusersRMSNorm ffn_norm1, norm2, ffn_norm2;
};

// Tables of complex numbers in twice the precision, as pairs of fp64, made of positions in every forward.
struct Lumina2RotaryPosEmbed : Module {
  Lumina2RotaryPosEmbed(Module& parent, std::string_view name, const Lumina2Config& c)
      : Module(parent, name), axes_dim(c.axes_dim), axes_lens(c.axes_lens), head_dim(c.head_dim), patch(c.patches.patch) {}

  struct Result {
    Tensor hidden;             // (B, S, p p C)
    Tensor text, image, both;  // (B, T, D), (B, S, D), (B, T + S, D)
  };
  Result operator()(const Tensor& latents, const Tensor& mask) const {
    Forward here(*this);
    const int64_t batch = latents.size(0), text = mask.size(1), rows = latents.size(2) / patch, columns = latents.size(3) / patch;
    require_positions(text, rows, columns);
    const int64_t image = checked_mul(rows, columns);
    { const Tensor lengths = filled(tape(), "sum", {batch}, DType::int64); }
    const Tensor position_ids = filled(tape(), "zeros", {batch, text + image, 3}, DType::int32);
    Tensor row_ids, column_ids;
    for (int64_t i = 0; i < batch; ++i) {
      { const Tensor text_ids = arange(tape(), text, DType::int32); }
      row_ids = repeated(arange(tape(), rows, DType::int32), {rows, columns});
      column_ids = repeated(arange(tape(), columns, DType::int32), {rows, columns});
    }
    Result out;
    out.both = tables_of(batch, text + image);
    out.text = filled(tape(), "zeros", {batch, text, head_dim}, DType::float64);
    out.image = filled(tape(), "zeros", {batch, image, head_dim}, DType::float64);
    out.hidden = view(latents, {batch, latents.size(1), rows, patch, columns, patch});
    out.hidden = flatten(flatten(permute(out.hidden, {0, 2, 4, 3, 5, 1}), 3), 1, 2);
    return out;
  }

  void require_positions(int64_t text, int64_t rows, int64_t columns) const {
    const int64_t needed[] = {text + 1, rows, columns};
    for (size_t i = 0; i < 3; ++i)
      if (needed[i] > axes_lens[i])
        throw Error("[lumina2] " + std::to_string(needed[i]) + " positions along axis " + std::to_string(i) + ", but axes_lens has " +
                        std::to_string(axes_lens[i]),
                    i == 0 ? "use fewer text_tokens" : "use a smaller image");
  }

  Tensor repeated(const Tensor& x, const Dims& sizes) const { return filled(tape(), "repeat", sizes, x.dtype()); }

  // One table an axis, looked up at every token, side by side.
  Tensor tables_of(int64_t batch, int64_t tokens) const {
    Tensors result;
    Tensor freqs, index;
    for (size_t i = 0; i < 3; ++i) {
      freqs = filled(tape(), "_to_copy", {axes_lens[i], axes_dim[i]}, DType::float64);
      index = nondiff("_to_copy", filled(tape(), "repeat", {batch, tokens, axes_dim[i] / 2}, DType::int32), DType::int64);
      const Tensor every_sample = repeated(freqs, {batch, axes_lens[i], axes_dim[i]});
      result.push_back(filled(tape(), "gather", {batch, tokens, axes_dim[i]}, DType::float64));
    }
    return cat(result, -1);
  }

  std::vector<int64_t> axes_dim, axes_lens;
  int64_t head_dim, patch;
};

struct CaptionEmbedder : Module {
  CaptionEmbedder(Module& parent, std::string_view name, const Lumina2Config& c)
      : Module(parent, name), norm(*this, "0", c.cap_feat_dim), linear(*this, "1", c.cap_feat_dim, c.width) {}
  Tensor operator()(const Tensor& x) const {
    Forward here(*this);
    const Tensor normed = norm(x);
    return linear(normed);
  }
  DiffusersRMSNorm norm;
  Linear linear;
};

struct TimeCaptionEmbedding : Module {
  TimeCaptionEmbedding(Module& parent, std::string_view name, const Lumina2Config& c)
      : Module(parent, name),
        time_proj(*this, "time_proj", 256),
        timestep_embedder(*this, "timestep_embedder", 256, c.time_width),
        caption_embedder(*this, "caption_embedder", c) {}
  Timesteps time_proj;
  TimestepEmbedding timestep_embedder;
  CaptionEmbedder caption_embedder;
};

// LuminaLayerNormContinuous: the last norm and projection.
struct LastNorm : Module {
  LastNorm(Module& parent, std::string_view name, const Lumina2Config& c)
      : Module(parent, name),
        linear_1(*this, "linear_1", c.time_width, c.width),
        norm(*this, "norm", c.width, false),
        linear_2(*this, "linear_2", c.width, c.patches.patch * c.patches.patch * c.out_channels) {}
  Tensor operator()(const Tensor& input, const Tensor& temb) const {
    Forward here(*this);
    const Tensor scale = linear_1(to(silu(temb), input.dtype()));
    Tensor x = norm(input);
    x = mul(x, unsqueeze(add_scalar(scale), 1));
    x = linear_2(x);
    return x;
  }
  Linear linear_1;
  LayerNorm norm;
  Linear linear_2;
};

class Lumina2Transformer2DModel : public Denoiser {
 public:
  Lumina2Transformer2DModel(Module& parent, std::string_view name, const Config& config)
      : Denoiser(parent, name),
        config_(config),
        rope_embedder_(*this, "rope_embedder", config_),
        x_embedder_(*this, "x_embedder", config_.patches.patch * config_.patches.patch * config_.patches.channels, config_.width),
        time_caption_embed_(*this, "time_caption_embed", config_),
        noise_refiner_(*this, "noise_refiner"),
        context_refiner_(add(noise_refiner_, config_.num_refiner_layers, true), "context_refiner"),
        layers_(add(context_refiner_, config_.num_refiner_layers, false), "layers"),
        norm_out_(add(layers_, config_.num_layers, true), "norm_out", config_) {}

  Dims latent_sizes(int64_t samples, const Canvas& canvas) const override {
    return image_latent_sizes("lumina2", samples, canvas, config_.patches);
  }
  Dims target_sizes(int64_t samples, const Canvas& canvas) const override {
    Dims sizes = latent_sizes(samples, canvas);
    sizes[1] = config_.out_channels;
    return sizes;
  }

  // text states and their mask
  Conditions conditions(int64_t samples, const Canvas& canvas, DType dtype) override {
    const int64_t text = canvas.text_tokens ? canvas.text_tokens : 256;
    return {{{samples, text, config_.cap_feat_dim}, dtype}, {{samples, text}, DType::bool_}};
  }

  bool predicts_noise() const override { return false; }

  Tensor predict(const Tensor& latents, const Tensor& timestep, const Tensors& c) override {
    Forward here(*this);
    const Tensor temb = time_embed(timestep, latents.dtype());
    Tensor encoder = time_caption_embed_.caption_embedder(c[0]);  // (B, T, C)
    Lumina2RotaryPosEmbed::Result rotary = rope_embedder_(latents, c[1]);
    Tensor hidden = std::move(rotary.hidden);
    hidden = x_embedder_(hidden);  // (B, S, C)
    for (Lumina2TransformerBlock& layer : context_refiner_) encoder = layer(encoder, c[1], rotary.text, {});
    for (Lumina2TransformerBlock& layer : noise_refiner_) hidden = layer(hidden, {}, rotary.image, temb);
    const int64_t batch = latents.size(0), text = encoder.size(1), tokens = text + hidden.size(1);
    const Tensor mask = filled(tape(), "new_zeros", {batch, tokens}, DType::bool_);
    Tensor joint = filled(tape(), "new_zeros", {batch, tokens, config_.width}, hidden.dtype());
    for (int64_t i = 0; i < batch; ++i) {
      joint = copy_into_slice_(joint, select(encoder, 0, i));
      joint = copy_into_slice_(joint, select(hidden, 0, i));
    }
    hidden = joint;
    for (Lumina2TransformerBlock& layer : layers_) {
      const auto run = [&layer, both = rotary.both](const Tensors& in) { return Tensors{layer(in[0], {}, both, in[1])}; };
      hidden = run_block(layer, run, Tensors{hidden, temb})[0];
    }
    hidden = norm_out_(hidden, temb);
    return images(hidden, text, latents.size(2) / config_.patches.patch, latents.size(3) / config_.patches.patch);
  }

 private:
  Module& add(ModuleList<Lumina2TransformerBlock>& list, int64_t n, bool modulation) {
    for (int64_t i = 0; i < n; ++i) list.add(config_, modulation);
    return *this;
  }

  Tensor time_embed(const Tensor& timestep, DType dtype) const {
    const Tensor projected = to(time_caption_embed_.time_proj(timestep), dtype);
    return time_caption_embed_.timestep_embedder(projected);  // (B, time width)
  }

  // Sample by sample: the tokens after the text become an image again.
  Tensor images(const Tensor& hidden, int64_t text, int64_t rows, int64_t columns) const {
    const int64_t patch = config_.patches.patch;
    Tensors output;
    for (int64_t i = 0; i < hidden.size(0); ++i) {
      Tensor image = slice(select(hidden, 0, i), 0, text, hidden.size(1));
      image = permute(view(image, {rows, columns, patch, patch, config_.out_channels}), {4, 0, 2, 1, 3});
      output.push_back(flatten(flatten(image, 3, 4), 1, 2));
    }
    return stack(output, 0);
  }

  Lumina2Config config_;
  Lumina2RotaryPosEmbed rope_embedder_;
  Linear x_embedder_;
  TimeCaptionEmbedding time_caption_embed_;
  ModuleList<Lumina2TransformerBlock> noise_refiner_, context_refiner_, layers_;
  LastNorm norm_out_;
};

}  // namespace

std::unique_ptr<Model> make_lumina2(Build& build, const Config& config) {
  return make_training_of<Lumina2Transformer2DModel>(build, config);
}

}  // namespace plimsoll
