// diffusers QwenImageTransformer2DModel.
#include <map>

#include "model/family.h"
#include "nn/ada_norm.h"
#include "nn/denoiser.h"
#include "nn/diffusers_attention.h"
#include "nn/diffusers_layers.h"
#include "nn/diffusers_rotary.h"
#include "ops/complex.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

constexpr int64_t kQwenImagePixelsPerToken = 16;  // the VAE makes one latent of 8 x 8, and 2 x 2 of them are packed
constexpr int64_t kPositions = 4096;              // along an axis

struct QwenImageConfig {
  explicit QwenImageConfig(const Config& c)
      : patch_size(c.size({"patch_size"}, 2)),
        in_channels(c.size({"in_channels"}, 64)),
        out_channels(c.is_null("out_channels") ? in_channels : c.size({"out_channels"}, 16)),
        num_layers(c.size({"num_layers"}, 60)),
        heads(c.size({"num_attention_heads"}, 24)),
        head_dim(c.size({"attention_head_dim"}, 128)),
        width(checked_mul(heads, head_dim)),
        joint_attention_dim(c.size({"joint_attention_dim"}, 3584)),
        axes_dims_rope(sizes_in(c, "axes_dims_rope", {16, 56, 56}, 3)),
        text_mask(c.flag({"text_mask"}, false)) {
    require_rotary_axes(c, "axes_dims_rope", axes_dims_rope, "attention_head_dim", head_dim);
    for (const char* key : {"zero_cond_t", "use_additional_t_cond", "use_layer3d_rope"})
      if (c.flag({key}, false)) throw Error(std::string("[qwen_image] ") + key + " cannot be simulated", "leave it out");
  }
  int64_t patch_size, in_channels, out_channels, num_layers, heads, head_dim, width, joint_attention_dim;
  std::vector<int64_t> axes_dims_rope;
  bool text_mask;  // encoder_hidden_states_mask is given, as for prompts of several lengths
};

struct QwenTimestepProjEmbeddings : Module {
  QwenTimestepProjEmbeddings(Module& parent, std::string_view name, int64_t width)
      : Module(parent, name), timestep_embedder(*this, "timestep_embedder", 256, width) {}

  Tensor operator()(const Tensor& timestep, DType dtype) const {
    Forward here(*this);
    const Tensor timesteps_proj = time_proj(timestep);
    return timestep_embedder(to(timesteps_proj, dtype));
  }

  Timesteps time_proj{*this, "time_proj", 256};
  TimestepEmbedding timestep_embedder;
};

// Tables of complex numbers of all positions stay on the device once they are there, and so does that of each size of image.
struct QwenEmbedRope : Module {
  QwenEmbedRope(Module& parent, std::string_view name, const std::vector<int64_t>& axes)
      : Module(parent, name), axes_dim(axes), pairs((axes[0] + axes[1] + axes[2]) / 2) {}

  struct Tables {
    Tensor image, text;  // (S, pairs), (T, pairs)
  };
  Tables operator()(int64_t rows, int64_t columns, int64_t text) {
    Forward here(*this);
    Tensor& image = image_tables[{rows, columns}];
    if (!image) image = image_table(rows, columns);
    const int64_t at = std::max(rows / 2, columns / 2);
    const Tensor text_table = slice(positive, 0, at, at + text);
    return {cat({image}, 0), text_table};
  }

  Tensor image_table(int64_t rows, int64_t columns) {
    if (!positive) {
      positive = filled(tape(), "_to_copy", {kPositions, pairs}, kComplex64);
      negative = filled(tape(), "_to_copy", {kPositions, pairs}, kComplex64);
    }
    const Tensor down = filled(tape(), "cat", {rows, axes_dim[1] / 2}, kComplex64);
    const Tensor across = filled(tape(), "cat", {columns, axes_dim[2] / 2}, kComplex64);
    const Tensor freqs = filled(tape(), "cat", {checked_mul(rows, columns), pairs}, kComplex64);
    return clone(freqs);
  }

  std::vector<int64_t> axes_dim;
  int64_t pairs;
  Tensor positive, negative;  // (positions, pairs)
  std::map<std::pair<int64_t, int64_t>, Tensor> image_tables;
};

// apply_rotary_emb_qwen in complex numbers. x: (B, S, H, D)
Tensor qwen_image_rotate(const Tensor& x, const Tensor& freqs) {
  Dims pairs = x.sizes();
  pairs[-1] /= 2;
  pairs.push_back(2);
  const Tensor turned = view_as_complex(reshape(to(x, DType::float32), pairs));  // (B, S, H, D / 2)
  const Tensor out = flatten(view_as_real(complex_mul(turned, unsqueeze(freqs, 1))), 3);
  return to(out, x.dtype());
}

// QwenDoubleStreamAttnProcessor2_0: {image, text}. text_mask: (B, T), or undefined.
Tensors qwen_image_attention(const DiffusersAttention& attn, const Tensor& image, const Tensor& text, const Tensor& text_mask,
                             const QwenEmbedRope::Tables& rotary) {
  Forward here(attn);
  Tensor image_mask, mask;
  if (text_mask) {
    image_mask = filled(image.tape(), "ones", {image.size(0), image.size(1)}, DType::bool_);
    mask = cat({text_mask, image_mask}, 1);
    mask = unsqueeze(unsqueeze(mask, 1), 1);  // (B, 1, 1, T + S)
  }
  Tensor img_query = attn.to_q(image), img_key = attn.to_k(image), img_value = attn.to_v(image);                          // (B, S, C)
  Tensor txt_query = (*attn.add_q_proj)(text), txt_key = (*attn.add_k_proj)(text), txt_value = (*attn.add_v_proj)(text);  // (B, T, C)
  for (Tensor* t : {&img_query, &img_key, &img_value, &txt_query, &txt_key, &txt_value}) *t = unflatten_heads(*t, attn.head_dim);
  img_query = (*attn.norm_q)(img_query);  // (B, S, H, D)
  img_key = (*attn.norm_k)(img_key);
  txt_query = (*attn.norm_added_q)(txt_query);
  txt_key = (*attn.norm_added_k)(txt_key);
  img_query = qwen_image_rotate(img_query, rotary.image);
  img_key = qwen_image_rotate(img_key, rotary.image);
  txt_query = qwen_image_rotate(txt_query, rotary.text);
  txt_key = qwen_image_rotate(txt_key, rotary.text);
  const Tensor joint_query = cat({txt_query, img_query}, 1), joint_key = cat({txt_key, img_key}, 1),
               joint_value = cat({txt_value, img_value}, 1);                     // (B, T + S, H, D)
  Tensor joint = dispatch_attention(joint_query, joint_key, joint_value, mask);  // (B, T + S, H, D)
  joint = flatten(joint, 2, 3);
  joint = to(joint, joint_query.dtype());
  Tensor txt_out = slice(joint, 1, 0, text.size(1)), img_out = slice(joint, 1, text.size(1), joint.size(1));
  img_out = attn.project_out(contiguous(img_out));
  txt_out = (*attn.to_add_out)(contiguous(txt_out));
  return {img_out, txt_out};
}

// nn.Sequential(SiLU, Linear)
struct QwenImageModulation : Module {
  QwenImageModulation(Module& parent, std::string_view name, int64_t width)
      : Module(parent, name), linear(*this, "1", width, checked_mul(6, width)) {}
  Tensor operator()(const Tensor& temb) const {
    Forward here(*this);
    return linear(silu(temb));
  }
  Linear linear;
};

Tensor within_fp16(const Tensor& x) { return x.dtype() == DType::float16 ? clamp(x) : x; }

struct QwenImageTransformerBlock : Module {
  QwenImageTransformerBlock(Module& parent, std::string_view name, const QwenImageConfig& c) : Module(parent, name), config(c) {}

  Tensors operator()(const Tensor& hidden_in, const Tensor& encoder_in, const Tensor& text_mask, const Tensor& temb,
                     const QwenEmbedRope::Tables& rotary) const {
    Forward here(*this);
    const Tensor img_params = img_mod(temb), txt_params = txt_mod(temb);           // (B, 6 C)
    const Tensors img = chunk(img_params, 2, -1), txt = chunk(txt_params, 2, -1);  // before attention, before the feed-forward
    const Tensor img_normed = img_norm1(hidden_in);
    const Modulated img1 = modulated(img_normed, img[0]);
    const Tensor txt_normed = txt_norm1(encoder_in);
    const Modulated txt1 = modulated(txt_normed, txt[0]);
    const Tensors attended = qwen_image_attention(attn, img1.x, txt1.x, text_mask, rotary);
    Tensor hidden, encoder;
    {
      const Tensor gated = mul(img1.gate, attended[0]);
      hidden = add(hidden_in, gated);  // (B, S, C)
    }
    {
      const Tensor gated = mul(txt1.gate, attended[1]);
      encoder = add(encoder_in, gated);  // (B, T, C)
    }
    const Tensor img_normed2 = img_norm2(hidden);
    const Modulated img2 = modulated(img_normed2, img[1]);
    const Tensor img_out = img_mlp(img2.x);
    {
      const Tensor gated = mul(img2.gate, img_out);
      hidden = add(hidden, gated);
    }
    const Tensor txt_normed2 = txt_norm2(encoder);
    const Modulated txt2 = modulated(txt_normed2, txt[1]);
    const Tensor txt_out = txt_mlp(txt2.x);
    {
      const Tensor gated = mul(txt2.gate, txt_out);
      encoder = add(encoder, gated);
    }
    encoder = within_fp16(encoder);
    hidden = within_fp16(hidden);
    return {encoder, hidden};
  }

  struct Modulated {
    Tensor x, gate;
  };
  static Modulated modulated(const Tensor& x, const Tensor& params) {
    const Tensors part = chunk(params, 3, -1);  // shift, scale, gate: (B, C)
    return {modulate(x, part[1], part[0]), unsqueeze(part[2], 1)};
  }

  const QwenImageConfig& config;
  QwenImageModulation img_mod{*this, "img_mod", config.width};
  LayerNorm img_norm1{*this, "img_norm1", config.width, false};
  DiffusersAttention attn{
      *this, "attn", {.width = config.width, .heads = config.heads, .head_dim = config.head_dim, .joint = true, .qk_norm = true}};
  LayerNorm img_norm2{*this, "img_norm2", config.width, false};
  DiffusersFeedForward img_mlp{*this, "img_mlp", config.width};
  QwenImageModulation txt_mod{*this, "txt_mod", config.width};
  LayerNorm txt_norm1{*this, "txt_norm1", config.width, false};
  LayerNorm txt_norm2{*this, "txt_norm2", config.width, false};
  DiffusersFeedForward txt_mlp{*this, "txt_mlp", config.width};
};

class QwenImageTransformer2DModel : public Denoiser {
 public:
  QwenImageTransformer2DModel(Module& parent, std::string_view name, const Config& config) : Denoiser(parent, name), config_(config) {}

  Dims latent_sizes(int64_t samples, const Canvas& c) const override {
    return {samples, checked_mul(rows(c), columns(c)), config_.in_channels};
  }
  Dims target_sizes(int64_t samples, const Canvas& c) const override { return {samples, checked_mul(rows(c), columns(c)), proj_out_.out}; }

  // text states and their mask
  Conditions conditions(int64_t samples, const Canvas& canvas, DType dtype) override {
    const int64_t text = canvas.text_tokens ? canvas.text_tokens : 512;
    rows_ = rows(canvas);
    columns_ = columns(canvas);
    if (std::max(rows_, columns_) / 2 + text > kPositions)
      throw Error("[qwen_image] " + std::to_string(text) + " text tokens after the image: there are 4096 positions",
                  "use fewer text_tokens");
    Conditions out{{{samples, text, config_.joint_attention_dim}, dtype}};
    if (config_.text_mask) out.push_back({{samples, text}, DType::int64});
    return out;
  }

  Tensor predict(const Tensor& latents, const Tensor& time, const Tensors& c) override {
    Forward here(*this);
    Tensor hidden = img_in_(latents);  // (B, S, C)
    const Tensor timestep = to(time, hidden.dtype());
    Tensor encoder = txt_norm_(c[0]);
    encoder = txt_in_(encoder);  // (B, T, C)
    const TextLengths lengths = config_.text_mask ? text_lengths(c[1]) : TextLengths{};
    const Tensor temb = time_text_embed_(timestep, hidden.dtype());
    const QwenEmbedRope::Tables rotary = pos_embed_(rows_, columns_, encoder.size(1));
    for (QwenImageTransformerBlock& block : transformer_blocks_) {
      const auto run = [&block, rotary](const Tensors& in) { return block(in[0], in[1], in[2], in[3], rotary); };
      Tensors out = run_block(block, run, Tensors{hidden, encoder, lengths.mask, temb});
      encoder = std::move(out[0]);
      hidden = std::move(out[1]);
    }
    hidden = norm_out_(hidden, temb);
    return proj_out_(hidden);
  }

 private:
  Module& add_blocks() {
    for (int64_t i = 0; i < config_.num_layers; ++i) transformer_blocks_.add(config_);
    return *this;
  }

  // compute_text_seq_len_from_mask
  struct TextLengths {
    Tensor mask, per_sample;  // (B, T), (B)
  };
  TextLengths text_lengths(const Tensor& given) const {
    const Tensor mask = nondiff("_to_copy", given, DType::bool_);
    const Tensor position_ids = arange(tape(), mask.size(1));
    Tensor active;
    {
      const Tensor zero = filled(tape(), "new_zeros", {}, DType::int64);
      active = filled(tape(), "where", mask.sizes(), DType::int64);
    }
    const Tensor any = filled(tape(), "any", {mask.size(0)}, DType::bool_);
    Tensor length = filled(tape(), "max", {mask.size(0)}, DType::int64);
    { const Tensor indices = filled(tape(), "max", {mask.size(0)}, DType::int64); }
    length = nondiff("add", length, DType::int64);
    const Tensor whole = filled(tape(), "scalar_tensor", {}, DType::int64);
    return {mask, nondiff("where", length, DType::int64)};
  }

  static int64_t rows(const Canvas& c) { return tokens_along("qwen_image", "height", c.height, kQwenImagePixelsPerToken); }
  static int64_t columns(const Canvas& c) { return tokens_along("qwen_image", "width", c.width, kQwenImagePixelsPerToken); }

  QwenImageConfig config_;
  int64_t rows_ = 0, columns_ = 0;  // of the batch's images, in tokens
  QwenEmbedRope pos_embed_{*this, "pos_embed", config_.axes_dims_rope};
  QwenTimestepProjEmbeddings time_text_embed_{*this, "time_text_embed", config_.width};
  DiffusersRMSNorm txt_norm_{*this, "txt_norm", config_.joint_attention_dim};
  Linear img_in_{*this, "img_in", config_.in_channels, config_.width};
  Linear txt_in_{*this, "txt_in", config_.joint_attention_dim, config_.width};
  ModuleList<QwenImageTransformerBlock> transformer_blocks_{*this, "transformer_blocks"};
  AdaLayerNormContinuous norm_out_{add_blocks(), "norm_out", config_.width, config_.width};
  Linear proj_out_{*this, "proj_out", config_.width, (config_.patch_size * config_.patch_size * config_.out_channels)};
};

std::unique_ptr<Model> make_qwen_image(Build& build, const Config& config) {
  return make_training_of<QwenImageTransformer2DModel>(build, config);
}

}  // namespace

const Family& qwen_image_family() {
  static const Family kFamily{
      .name = "qwen_image",
      .library = "diffusers",
      .models = {{"qwen_image", {"QwenImageTransformer2DModel"}, InputKind::own, 1024, make_qwen_image}},
      .presets = {{"qwen-image", R"({})", 1024}},
  };
  return kFamily;
}

}  // namespace plimsoll
