// HiDreamImageTransformer2DModel as the AI Toolkit has it (extensions_built_in/diffusion_models/hidream): two streams, then one, with a
// mixture of experts in both. Every expert is taken to get as many tokens as the others. Images are square: others are padded to the
// largest number of tokens there. The sums of the experts' results are written in place over what autograd keeps of them, which PyTorch
// allows under a checkpoint alone: without one the toolkit's step ends in an error.
#include "model/family.h"
#include "nn/denoiser.h"
#include "nn/diffusers_layers.h"
#include "nn/diffusers_patches.h"
#include "nn/diffusers_rotary.h"
#include "ops/attention.h"
#include "ops/index.h"
#include "ops/loss.h"
#include "ops/matmul.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

struct HiDreamConfig {
  explicit HiDreamConfig(const Config& c)
      : patches{.sample_size = 128, .patch = c.size({"patch_size"}, 2), .channels = c.size({"in_channels"}, 64)},
        out_channels(c.size({"out_channels"}, patches.channels)),
        num_layers(c.size({"num_layers"}, 16)),
        num_single_layers(c.size({"num_single_layers"}, 32)),
        heads(c.size({"num_attention_heads"}, 20)),
        head_dim(c.size({"attention_head_dim"}, 128)),
        width(checked_mul(heads, head_dim)),
        caption_channels(sizes_in(c, "caption_channels", {4096, 4096}, 2)),
        text_emb_dim(c.size({"text_emb_dim"}, 2048)),
        num_routed_experts(c.integer({"num_routed_experts"}, 4)),
        num_activated_experts(c.size({"num_activated_experts"}, 2)),
        axes_dims_rope(sizes_in(c, "axes_dims_rope", {64, 32, 32}, 3)),
        llama_layers(indices_in(c, "llama_layers")),
        llama_states(c.size({"llama_states"}, 32)) {
    const std::vector<int64_t> largest = sizes_in(c, "max_resolution", {128, 128}, 2);
    max_seq = checked_mul(largest[0], largest[1]) / (patches.patch * patches.patch);
    require_rotary_axes(c, "axes_dims_rope", axes_dims_rope, "attention_head_dim", head_dim);
    if (num_routed_experts < 0 || (num_routed_experts > 0 && num_activated_experts > num_routed_experts))
      throw Error("[hidream] num_activated_experts " + std::to_string(num_activated_experts) + " of num_routed_experts " +
                      std::to_string(num_routed_experts),
                  "activate no more experts than there are; 0 routed experts make a plain feed-forward");
    const int64_t blocks = num_layers + num_single_layers;
    if (llama_layers.empty())  // HiDream-I1: each of Llama's states once, then its last
      for (int64_t i = 0; i < blocks; ++i) llama_layers.push_back(std::min(i, llama_states - 1));
    if (static_cast<int64_t>(llama_layers.size()) != blocks)
      throw Error(
          "[hidream] llama_layers names " + std::to_string(llama_layers.size()) + " layers for " + std::to_string(blocks) + " blocks",
          "give one for each block");
    for (const int64_t layer : llama_layers)
      if (layer >= llama_states)
        throw Error("[hidream] llama_layers has " + std::to_string(layer) + ", but llama_states is " + std::to_string(llama_states),
                    "count from 0");
  }
  PatchEmbedSizes patches;
  int64_t out_channels, num_layers, num_single_layers, heads, head_dim, width;
  std::vector<int64_t> caption_channels;
  int64_t text_emb_dim, num_routed_experts, num_activated_experts;
  std::vector<int64_t> axes_dims_rope, llama_layers;
  int64_t llama_states;  // layers whose states the text encoder gives
  int64_t max_seq = 0;   // tokens of the largest image
};

struct FeedForwardSwiGLU : Module {
  FeedForwardSwiGLU(Module& parent, std::string_view name, int64_t dim, int64_t hidden)
      : Module(parent, name),
        w1(*this, "w1", dim, inner(hidden), false),
        w2(*this, "w2", inner(hidden), dim, false),
        w3(*this, "w3", dim, inner(hidden), false) {}

  static int64_t inner(int64_t hidden) { return (checked_mul(2, hidden) / 3 + 255) / 256 * 256; }

  Tensor operator()(const Tensor& x) const {
    Forward here(*this);
    Tensor product;
    {
      const Tensor gate = silu(w1(x)), value = w3(x);  // (..., inner)
      product = mul(gate, value);
    }
    return w2(product);
  }

  Linear w1, w2, w3;
};

struct MoEGate : Module {
  MoEGate(Module& parent, std::string_view name, const HiDreamConfig& c)
      : Module(parent, name), top_k(c.num_activated_experts), weight(parameter("weight", {c.num_routed_experts, c.width})) {}

  TopK operator()(const Tensor& hidden) const {
    Forward here(*this);
    const Tensor logits = linear(view(hidden, {-1, hidden.size(-1)}), weight);  // (tokens, experts)
    const Tensor scores = softmax(logits);
    return topk(scores, top_k);
  }

  int64_t top_k;
  Tensor weight;
};

struct MOEFeedForwardSwiGLU : Module {
  MOEFeedForwardSwiGLU(Module& parent, std::string_view name, const HiDreamConfig& c)
      : Module(parent, name), config(c), gate(add_experts(c), "gate", c) {}

  Tensor operator()(const Tensor& identity) {
    Forward here(*this);
    const TopK chosen = gate(identity);
    const Tensor x = view(identity, {-1, identity.size(-1)});
    Tensor y = view(moe_infer(x, view(chosen.indices, {-1}), view(chosen.values, {-1, 1})), identity.sizes());
    y = add(y, shared_experts(identity));
    return y;
  }

  // Rows by expert, computed, weighted and added to their tokens' sums.
  Tensor moe_infer(const Tensor& x, const Tensor& flat_expert_indices, const Tensor& flat_expert_weights) {
    Tensor expert_cache = filled(tape(), "zeros_like", x.sizes(), x.dtype());  // (tokens, C)
    const Tensor idxs = argsort(flat_expert_indices);
    { const Tensor counts = filled(tape(), "bincount", {static_cast<int64_t>(experts.size())}, DType::int64); }
    const Tensor token_idxs = nondiff("floor_divide", idxs, DType::int64);
    const int64_t rows = idxs.size(0), n = static_cast<int64_t>(experts.size());
    Tensor expert_tokens, expert_out;
    for (int64_t i = 0, start = 0, end = 0; i < n; ++i, start = end) {
      end = start + rows / n + (i < rows % n ? 1 : 0);
      if (start == end) continue;
      const Tensor exp_token_idx = slice(token_idxs, 0, start, end);
      expert_tokens = index(x, exp_token_idx);  // (rows of this expert, C)
      expert_out = experts[static_cast<size_t>(i)](expert_tokens);
      expert_out = weigh_rows_(expert_out, index(flat_expert_weights, slice(idxs, 0, start, end)));
      expert_cache = to(expert_cache, expert_out.dtype());
      expert_cache = scatter_reduce_(expert_cache, filled(tape(), "repeat", {end - start, x.size(1)}, DType::int64), expert_out);
    }
    return expert_cache;
  }

  Module& add_experts(const HiDreamConfig& c) {
    for (int64_t i = 0; i < c.num_routed_experts; ++i) experts.add(c.width, 4 * c.width);
    return *this;
  }

  const HiDreamConfig& config;
  FeedForwardSwiGLU shared_experts{*this, "shared_experts", config.width, 2 * config.width};
  ModuleList<FeedForwardSwiGLU> experts{*this, "experts"};
  MoEGate gate;
};

// ff_i: experts, or without any a plain feed-forward.
struct ImageFeedForward {
  ImageFeedForward(Module& parent, std::string_view name, const HiDreamConfig& c)
      : experts(c.num_routed_experts ? std::make_unique<MOEFeedForwardSwiGLU>(parent, name, c) : nullptr),
        plain(c.num_routed_experts ? nullptr : std::make_unique<FeedForwardSwiGLU>(parent, name, c.width, 4 * c.width)) {}
  Tensor operator()(const Tensor& x) const { return experts ? (*experts)(x) : (*plain)(x); }
  std::unique_ptr<MOEFeedForwardSwiGLU> experts;
  std::unique_ptr<FeedForwardSwiGLU> plain;
};

// The projections of one stream, whose names end in `suffix`.
struct Projections {
  Projections(Module& parent, const std::string& suffix, int64_t width)
      : to_q(parent, "to_q" + suffix, width, width),
        to_k(parent, "to_k" + suffix, width, width),
        to_v(parent, "to_v" + suffix, width, width),
        to_out(parent, "to_out" + suffix, width, width),
        q_rms_norm(parent, "q_rms_norm" + suffix, width),
        k_rms_norm(parent, "k_rms_norm" + suffix, width) {}
  Linear to_q, to_k, to_v, to_out;
  FusedRMSNorm q_rms_norm, k_rms_norm;
};

// Turned by a table (B, S, 1, D / 2, 2, 2), in fp32.
Tensor rotated(const Tensor& pairs, const Tensor& rope) {
  const Tensor first = mul(select(rope, -1, 0), select(pairs, -1, 0));  // (B, S, H, D / 2, 2)
  const Tensor second = mul(select(rope, -1, 1), select(pairs, -1, 1));
  return add(first, second);
}

Tensor as_pairs(const Tensor& x) {
  const Tensor wide = to(x, DType::float32);
  return reshape(wide, {x.size(0), x.size(1), x.size(2), x.size(3) / 2, 1, 2});
}

void apply_rope(Tensor& query, Tensor& key, const Tensor& rope) {
  const Tensor query_pairs = as_pairs(query), key_pairs = as_pairs(key);
  const Tensor query_out = rotated(query_pairs, rope), key_out = rotated(key_pairs, rope);
  const Tensor q = to(reshape(query_out, query.sizes()), query.dtype()), k = to(reshape(key_out, key.sizes()), key.dtype());
  query = q;
  key = k;
}

struct HiDreamAttention : Module {
  HiDreamAttention(Module& parent, std::string_view name, const HiDreamConfig& c, bool single)
      : Module(parent, name),
        heads(c.heads),
        head_dim(c.head_dim),
        image(*this, "", c.width),
        text(single ? nullptr : std::make_unique<Projections>(*this, "_t", c.width)) {}

  struct Heads {
    Tensor query, key, value;  // (B, S, H, D)
  };
  Heads project(const Projections& p, const Tensor& x) const {
    Heads out;
    out.query = to(p.q_rms_norm(p.to_q(x)), x.dtype());
    out.key = to(p.k_rms_norm(p.to_k(x)), x.dtype());
    out.value = p.to_v(x);
    for (Tensor* t : {&out.query, &out.key, &out.value}) *t = view(*t, {x.size(0), -1, heads, head_dim});
    return out;
  }

  // {image} or {image, text}
  Tensors operator()(const Tensor& image_tokens, const Tensor& text_tokens, const Tensor& rope) const {
    Forward here(*this);
    const Heads i = project(image, image_tokens), t = text ? project(*text, text_tokens) : Heads();
    Heads joint = i;
    if (text) {
      joint.query = cat({i.query, t.query}, 1);  // (B, S + T, H, D)
      joint.key = cat({i.key, t.key}, 1);
      joint.value = cat({i.value, t.value}, 1);
    }
    apply_rope(joint.query, joint.key, rope);
    Tensor hidden = attention(joint);
    if (!text) return {image.to_out(hidden)};
    const Tensors parts = split(hidden, std::vector<int64_t>{image_tokens.size(1), text_tokens.size(1)}, 1);
    return {image.to_out(parts[0]), text->to_out(parts[1])};
  }

  static Tensor attention(const Heads& h) {
    const Tensor query = transpose(h.query, 1, 2), key = transpose(h.key, 1, 2), value = transpose(h.value, 1, 2);
    const Tensor hidden = flatten(transpose(scaled_dot_product_attention(query, key, value, {}), 1, 2), -2);  // (B, S, C)
    return to(hidden, query.dtype());
  }

  int64_t heads, head_dim;
  Projections image;
  std::unique_ptr<Projections> text;
};

// nn.Sequential(SiLU, Linear): parts of (B, 1, C)
struct HiDreamModulation : Module {
  HiDreamModulation(Module& parent, std::string_view name, int64_t width, int64_t parts)
      : Module(parent, name), parts(parts), linear(*this, "1", width, checked_mul(parts, width)) {}
  Tensor operator()(const Tensor& x) const {
    Forward here(*this);
    return linear(silu(x));
  }
  int64_t parts;
  Linear linear;
};

// out = norm(x) * (1 + scale) + shift, over what `out` was
void set_normed(Tensor& out, const LayerNorm& norm, const Tensor& x, const Tensor& scale, const Tensor& shift) {
  out = to(norm(x), x.dtype());
  Tensor scaled;
  {
    const Tensor factor = add_scalar(scale);
    scaled = mul(out, factor);
  }
  out = add(scaled, shift);
}

Tensor gated(const Tensor& gate, const Tensor& y, const Tensor& x) {
  const Tensor product = mul(gate, y);
  return add(product, x);
}

struct HiDreamImageSingleTransformerBlock : Module {
  HiDreamImageSingleTransformerBlock(Module& parent, std::string_view name, const HiDreamConfig& c) : Module(parent, name), config(c) {}

  Tensors operator()(const Tensors& in) const {
    Forward here(*this);
    Tensor image = in[0];
    const Tensors m = chunk(unsqueeze(adaLN_modulation(in[1]), 1), 6, -1);
    Tensor norm;
    set_normed(norm, norm1_i, image, m[1], m[0]);
    const Tensor attn_output = attn1(norm, {}, in[2])[0];
    image = gated(m[2], attn_output, image);
    set_normed(norm, norm3_i, image, m[4], m[3]);
    const Tensor ff_output = mul(m[5], ff_i(norm));
    image = add(ff_output, image);
    return {image};
  }

  const HiDreamConfig& config;
  HiDreamModulation adaLN_modulation{*this, "adaLN_modulation", config.width, 6};
  LayerNorm norm1_i{*this, "norm1_i", config.width, false};
  HiDreamAttention attn1{*this, "attn1", config, true};
  LayerNorm norm3_i{*this, "norm3_i", config.width, false};
  ImageFeedForward ff_i{*this, "ff_i", config};
};

struct HiDreamImageTransformerBlock : Module {
  HiDreamImageTransformerBlock(Module& parent, std::string_view name, const HiDreamConfig& c) : Module(parent, name), config(c) {}

  // {image, text} of {image, text, modulation, rope}
  Tensors operator()(const Tensors& in) const {
    Forward here(*this);
    Tensor image = in[0], text = in[1];
    const Tensors m = chunk(unsqueeze(adaLN_modulation(in[2]), 1), 12, -1);
    Tensor norm_image, norm_text;
    set_normed(norm_image, norm1_i, image, m[1], m[0]);
    set_normed(norm_text, norm1_t, text, m[7], m[6]);
    const Tensors attended = attn1(norm_image, norm_text, in[3]);
    image = gated(m[2], attended[0], image);
    text = gated(m[8], attended[1], text);
    set_normed(norm_image, norm3_i, image, m[4], m[3]);
    set_normed(norm_text, norm3_t, text, m[10], m[9]);
    const Tensor ff_output_i = mul(m[5], ff_i(norm_image)), ff_output_t = mul(m[11], ff_t(norm_text));
    image = add(ff_output_i, image);
    text = add(ff_output_t, text);
    return {image, text};
  }

  const HiDreamConfig& config;
  HiDreamModulation adaLN_modulation{*this, "adaLN_modulation", config.width, 12};
  LayerNorm norm1_i{*this, "norm1_i", config.width, false};
  LayerNorm norm1_t{*this, "norm1_t", config.width, false};
  HiDreamAttention attn1{*this, "attn1", config, false};
  LayerNorm norm3_i{*this, "norm3_i", config.width, false};
  ImageFeedForward ff_i{*this, "ff_i", config};
  LayerNorm norm3_t{*this, "norm3_t", config.width, false};
  FeedForwardSwiGLU ff_t{*this, "ff_t", config.width, 4 * config.width};
};

// HiDreamImageBlock: a block under one more name.
template <class Block>
struct HiDreamImageBlock : Module {
  HiDreamImageBlock(Module& parent, std::string_view name, const HiDreamConfig& c) : Module(parent, name), block(*this, "block", c) {}
  Block block;
};

struct TimestepEmbed : Module {
  TimestepEmbed(Module& parent, std::string_view name, int64_t width)
      : Module(parent, name), timestep_embedder(*this, "timestep_embedder", 256, width) {}
  Tensor operator()(const Tensor& timesteps, DType dtype) const {
    Forward here(*this);
    const Tensor projected = to(time_proj(timesteps), dtype);
    return timestep_embedder(projected);
  }
  Timesteps time_proj{*this, "time_proj", 256};
  TimestepEmbedding timestep_embedder;
};

// A module with the one part `part`.
template <class Part>
struct Wrapped : Module {
  template <class... Args>
  Wrapped(Module& parent, std::string_view name, std::string_view part, Args&&... args)
      : Module(parent, name), part(*this, part, std::forward<Args>(args)...) {}
  Tensor operator()(const Tensor& x) const {
    Forward here(*this);
    return part(x);
  }
  Part part;
};

struct OutEmbed : Module {
  OutEmbed(Module& parent, std::string_view name, const HiDreamConfig& c) : Module(parent, name), config(c) {}
  Tensor operator()(const Tensor& input, const Tensor& adaln_input) const {
    Forward here(*this);
    const Tensors m = chunk(adaLN_modulation(adaln_input), 2, 1);
    Tensor x;
    {
      Tensor scaled = norm_final(input);
      scaled = mul(scaled, add_scalar(unsqueeze(m[1], 1)));
      x = add(scaled, unsqueeze(m[0], 1));
    }
    return linear(x);
  }
  const HiDreamConfig& config;
  LayerNorm norm_final{*this, "norm_final", config.width, false};
  Linear linear{*this, "linear", config.width, (config.patches.patch * config.patches.patch * config.out_channels)};
  HiDreamModulation adaLN_modulation{*this, "adaLN_modulation", config.width, 2};
};

class HiDreamImageTransformer2DModel : public Denoiser {
 public:
  HiDreamImageTransformer2DModel(Module& parent, std::string_view name, const Config& config)
      : Denoiser(parent, name),
        config_(config),
        single_stream_blocks_(add_blocks(double_stream_blocks_, config_.num_layers), "single_stream_blocks"),
        final_layer_(add_blocks(single_stream_blocks_, config_.num_single_layers), "final_layer", config_) {
    for (size_t i = 0; i < config_.llama_layers.size(); ++i)
      caption_projection_.add("linear", config_.caption_channels[1], config_.width, false);
    caption_projection_.add("linear", config_.caption_channels[0], config_.width, false);
  }

  Dims latent_sizes(int64_t samples, const Canvas& c) const override {
    if (c.height != c.width)
      throw Error("[hidream] " + std::to_string(c.height) + " x " + std::to_string(c.width) + " pixels",
                  "only square images are simulated");
    return image_latent_sizes("hidream", samples, c, config_.patches);
  }
  Dims target_sizes(int64_t samples, const Canvas& canvas) const override {
    Dims sizes = latent_sizes(samples, canvas);
    sizes[1] = config_.out_channels;
    return sizes;
  }

  // T5's states, those of every layer of Llama, pooled texts
  Conditions conditions(int64_t samples, const Canvas& canvas, DType dtype) override {
    const int64_t text = canvas.text_tokens ? canvas.text_tokens : 128;
    return {{{samples, text, config_.caption_channels[0]}, dtype},
            {{config_.llama_states, samples, text, config_.caption_channels[1]}, dtype},
            {{samples, config_.text_emb_dim}, dtype}};
  }

  bool predicts_noise() const override { return false; }

  Tensor predict(const Tensor& latents, const Tensor& time, const Tensors& c) override {
    Forward here(*this);
    const int64_t batch = latents.size(0);
    const Tensor timesteps = t_embedder_(time, latents.dtype()), p_embedder = p_embedder_(c[2]);  // (B, C)
    const Tensor adaln_input = add(timesteps, p_embedder);
    Tensor hidden = patchify(latents);
    const int64_t image = hidden.size(1), side = latents.size(2) / config_.patches.patch;
    const Tensor img_ids = image_ids(batch, side);
    hidden = x_embedder_(hidden);  // (B, S, C)
    Tensors encoder;
    for (size_t i = 0; i < config_.llama_layers.size(); ++i)
      encoder.push_back(view(caption_projection_[i](select(c[1], 0, config_.llama_layers[i])), {batch, -1, config_.width}));
    encoder.push_back(view(caption_projection_[encoder.size()](c[0]), {batch, -1, config_.width}));
    const Tensor& last_llama = encoder[encoder.size() - 2];
    const Tensor& t5 = encoder.back();
    const Tensor txt_ids = filled(tape(), "zeros", {batch, t5.size(1) + last_llama.size(1) + encoder[0].size(1), 3}, DType::float32);
    const Tensor ids = cat({img_ids, txt_ids}, 1), rope = embed_positions(ids);

    size_t block_id = 0;
    Tensor initial = cat({t5, last_llama}, 1), current;  // (B, T, C)
    const int64_t text = initial.size(1);
    for (auto& block : double_stream_blocks_) {
      current = cat({initial, detach(encoder[block_id++])}, 1);
      const auto run = [&block](const Tensors& in) { return block.block(in); };
      Tensors out = run_cloned(block, run, {hidden, current}, adaln_input, rope);
      hidden = std::move(out[0]);
      initial = slice(out[1], 1, 0, text);
    }
    hidden = cat({hidden, initial}, 1);
    const int64_t tokens = hidden.size(1);
    for (auto& block : single_stream_blocks_) {
      hidden = cat({hidden, detach(encoder[block_id++])}, 1);
      const auto run = [&block](const Tensors& in) { return block.block(in); };
      hidden = run_cloned(block, run, {hidden}, adaln_input, rope)[0];
      hidden = slice(hidden, 1, 0, tokens);
    }
    hidden = slice(hidden, 1, 0, image);
    const Tensor output = final_layer_(hidden, adaln_input);
    return unpatchify_images(output, side);
  }

 private:
  template <class Block>
  Module& add_blocks(ModuleList<Block>& blocks, int64_t n) {
    for (int64_t i = 0; i < n; ++i) blocks.add(config_);
    return *this;
  }

  // A checkpoint gets copies of modulation and rotations.
  template <class Run>
  Tensors run_cloned(const Module& block, const Run& run, Tensors inputs, const Tensor& adaln_input, const Tensor& rope) const {
    const bool copies = tape().grad_enabled && build().checkpointing.on();
    inputs.push_back(copies ? clone(adaln_input) : adaln_input);
    inputs.push_back(copies ? clone(rope) : rope);
    return run_block(block, run, inputs);
  }

  // 'B C (H p1) (W p2) -> B (H W) (p1 p2 C)', beside a mask for images that are not square
  Tensor patchify(const Tensor& x) const {
    const int64_t p = config_.patches.patch, rows = x.size(2) / p, columns = x.size(3) / p;
    const Tensor x_masks = filled(tape(), "zeros", {x.size(0), config_.max_seq}, x.dtype());
    const Tensor patches = permute(reshape(x, {x.size(0), x.size(1), rows, p, columns, p}), {0, 2, 4, 3, 5, 1});
    return reshape(patches, {x.size(0), rows * columns, p * p * x.size(1)});
  }

  Tensor unpatchify_images(const Tensor& x, int64_t side) const {
    const int64_t p = config_.patches.patch;
    Tensors images;
    for (int64_t i = 0; i < x.size(0); ++i) {
      const Tensor tokens = reshape(select(x, 0, i), {1, side, side, p, p, config_.out_channels});
      images.push_back(reshape(permute(tokens, {0, 5, 1, 3, 2, 4}), {1, config_.out_channels, side * p, side * p}));
    }
    return cat(images, 0);
  }

  // (B, S, 3), the same for every sample
  Tensor image_ids(int64_t batch, int64_t side) const {
    const Tensor ids = filled(tape(), "zeros", {side, side, 3}, DType::float32);
    for (int axis = 0; axis < 2; ++axis) {
      Tensor shifted;
      {
        const Tensor along = arange(tape(), side);
        shifted = filled(tape(), "add", {side, side}, DType::float32);
      }
    }
    return expand(unsqueeze(view(ids, {side * side, 3}), 0), {batch, -1, -1});
  }

  // EmbedND: rotations of every axis in fp64, kept in fp32, (B, S, 1, D / 2, 2, 2)
  Tensor embed_positions(const Tensor& ids) const {
    Tensors axes;
    for (const int64_t dim : config_.axes_dims_rope) axes.push_back(rope(ids.size(0), ids.size(1), dim));
    return unsqueeze(cat(axes, -3), 2);
  }

  Tensor rope(int64_t batch, int64_t tokens, int64_t dim) const {
    const auto fp64 = [this](const char* op, const Dims& sizes) { return filled(tape(), op, sizes, DType::float64); };
    const Dims angles{batch, tokens, dim / 2};
    Tensor scale, omega;
    {
      const Tensor steps = fp64("arange", {dim / 2});
      scale = fp64("div", {dim / 2});
    }
    {
      const Tensor power = fp64("pow", {dim / 2}), inverse = fp64("reciprocal", {dim / 2});
      omega = fp64("mul", {dim / 2});
    }
    Tensor out = fp64("mul", angles);
    const Tensor cos_out = fp64("cos", angles), sin_out = fp64("sin", angles);
    Tensor stacked_out;
    {
      const Tensor minus = fp64("neg", angles);
      stacked_out = fp64("stack", {batch, tokens, dim / 2, 2, 2});
    }
    out = stacked_out;
    return to(out, DType::float32);
  }

  HiDreamConfig config_;
  TimestepEmbed t_embedder_{*this, "t_embedder", config_.width};
  Wrapped<TimestepEmbedding> p_embedder_{*this, "p_embedder", "pooled_embedder", config_.text_emb_dim, config_.width};
  Wrapped<Linear> x_embedder_{*this, "x_embedder", "proj", (config_.patches.patch * config_.patches.patch * config_.patches.channels),
                              config_.width};
  ModuleList<HiDreamImageBlock<HiDreamImageTransformerBlock>> double_stream_blocks_{*this, "double_stream_blocks"};
  ModuleList<HiDreamImageBlock<HiDreamImageSingleTransformerBlock>> single_stream_blocks_;
  OutEmbed final_layer_;
  ModuleList<Wrapped<Linear>> caption_projection_{*this, "caption_projection"};
};

std::unique_ptr<Model> make_hidream(Build& build, const Config& config) {
  return make_training_of<HiDreamImageTransformer2DModel>(build, config);
}

}  // namespace

const Family& hidream_family() {
  static const Family kFamily{
      .name = "hidream",
      .library = "the AI Toolkit",
      .models = {{"hidream", {"HiDreamImageTransformer2DModel"}, InputKind::own, 1024, make_hidream}},
      .presets = {{"hidream-i1", R"({"in_channels":16})", 1024}},
  };
  return kFamily;
}

}  // namespace plimsoll
