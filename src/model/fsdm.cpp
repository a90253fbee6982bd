// Few-shot diffusion models with a set encoder (thanhlamauto/few-shot-diffusion-models-jax, "lag" conditioning): a vision transformer
// reads each set of images with one of them left out, and its tokens are what a DiT's cross-attention looks at while it removes the
// noise from that one. Names follow the flax modules.
#include <fmt/format.h>

#include <charconv>
#include <set>

#include "model/families.h"
#include "nn/layers.h"
#include "nn/vision.h"
#include "ops/copy_slices.h"
#include "ops/index.h"
#include "ops/loss.h"
#include "ops/matmul.h"
#include "ops/norm.h"
#include "ops/pointwise.h"
#include "ops/reduce.h"
#include "ops/reshape.h"
#include "util/text.h"

namespace plimsoll {

namespace {

constexpr int64_t kMostImages = 1000;  // of a set: each is one run of the encoder

// "all", or the numbers of the blocks that have a cross-attention: "2,3,4,5".
std::set<int64_t> cross_attention_blocks(const Config& c, int64_t depth) {
  const std::string text = c.text({"cross_attn_layers"}, "all");
  std::set<int64_t> blocks;
  if (text == "all") {
    for (int64_t i = 0; i < depth; ++i) blocks.insert(i);
    return blocks;
  }
  for (const std::string& part : split_at(text, ',')) {
    int64_t block = -1;
    const char* end = part.data() + part.size();
    const auto [rest, problem] = std::from_chars(part.data(), end, block);
    if (problem != std::errc() || rest != end || block < 0 || block >= depth)
      throw Error(fmt::format("[{}] cross_attn_layers has '{}', expected blocks from 0 to {}", c.source(), part, depth - 1),
                  "write all, or numbers with commas between them: 2,3,4,5");
    blocks.insert(block);
  }
  return blocks;
}

int64_t scaled(const Config& c, const char* key, const char* alias, double fallback, int64_t width) {
  const double ratio = c.number({key, alias}, fallback);
  if (!(ratio * static_cast<double>(width) >= 1.0 && ratio <= 1e6))
    throw Error(fmt::format("[{}] {} {:g} leaves nothing of a width of {}", c.source(), key, ratio, width), "choose a ratio around 1 to 4");
  return static_cast<int64_t>(static_cast<double>(width) * ratio);
}

struct FsdmConfig {
  explicit FsdmConfig(const Config& c)
      : sample_size(c.size({"sample_size", "ns"}, 6)),
        image_size(c.size({"image_size", "img"}, 32)),
        patch_size(c.size({"patch_size", "patch"}, 2)),
        diffusion_steps(c.size({"diffusion_steps", "steps"}, 250)),
        dropout(probability(c, "dropout", 0.0)),
        hidden_size(c.size({"hidden_size", "hidden"}, 468)),
        depth(c.size({"depth"}, 6)),
        num_heads(c.size({"num_heads", "heads"}, 9)),
        mlp_dim(scaled(c, "mlp_ratio", "mlp", 3.0, hidden_size)),
        cross_attn_blocks(cross_attention_blocks(c, depth)),
        use_remat(c.flag({"use_remat"}, false)),
        hdim(c.size({"hdim"}, 256)),
        encoder_depth(c.size({"encoder_depth", "edepth"}, 6)),
        encoder_heads(c.size({"encoder_heads", "eheads"}, 12)),
        encoder_dim_head(c.size({"encoder_dim_head", "edh"}, 64)),
        encoder_mlp_dim(scaled(c, "encoder_mlp_ratio", "emlp", 1.0, hdim)),
        grid(image_size / patch_size) {
    require_known_arguments(c, "fsdm",
                            {"ns",
                             "hidden",
                             "heads",
                             "mlp",
                             "edepth",
                             "eheads",
                             "edh",
                             "emlp",
                             "img",
                             "patch",
                             "steps",
                             "sample_size",
                             "image_size",
                             "patch_size",
                             "dropout",
                             "hidden_size",
                             "depth",
                             "num_heads",
                             "mlp_ratio",
                             "diffusion_steps",
                             "use_remat",
                             "hdim",
                             "encoder_depth",
                             "encoder_heads",
                             "encoder_dim_head",
                             "encoder_mlp_ratio",
                             "mode_conditioning",
                             "context_channels",
                             "context_pool_size",
                             "cross_attn_layers"});
    if (sample_size > kMostImages)
      throw Error(fmt::format("[{}] sample_size {} is more than {}", c.source(), sample_size, kMostImages), "a set has a few images");
    c.require_divides("patch_size", patch_size, "image_size", image_size);
    c.require_divides("num_heads", num_heads, "hidden_size", hidden_size);
    if (hdim < 8) throw Error(fmt::format("[{}] hdim {} is too narrow for the embedding of time", c.source(), hdim), "choose at least 8");
    if (const std::string mode = c.text({"mode_conditioning"}, "lag"); mode != "lag")
      throw Error(fmt::format("[{}] mode_conditioning '{}' is not simulated", c.source(), mode),
                  "choose lag: cross-attention to the tokens");
    if (const int64_t channels = c.size({"context_channels"}, hdim); channels != hdim)
      throw Error(fmt::format("[{}] context_channels {} is not hdim {}: the context is the encoder's tokens", c.source(), channels, hdim),
                  "leave context_channels out");
    const int64_t pool = c.integer({"context_pool_size"}, 0);
    if (pool < 0)
      throw Error(fmt::format("[{}] context_pool_size is {}", c.source(), pool), "give a number of tokens, or 0 for all of them");
    if (pool > 0 && pool < patches()) {
      c.require_divides("context_pool_size", pool, "the number of patches,", patches());
      context_pool_size = pool;
    }
  }
  int64_t patches() const { return checked_mul(grid, grid); }

  int64_t sample_size, image_size, patch_size, diffusion_steps;
  double dropout;
  int64_t hidden_size, depth, num_heads, mlp_dim;
  std::set<int64_t> cross_attn_blocks;
  bool use_remat;
  int64_t hdim, encoder_depth, encoder_heads, encoder_dim_head, encoder_mlp_dim;
  int64_t grid;                   // patches along one side
  int64_t context_pool_size = 0;  // tokens that the context is averaged to; 0: all
};

// jax.lax.stop_gradient: the same numbers, outside the graph.
Tensor stop_gradient(const Tensor& x) {
  GradGuard no_grad(x.tape(), false);
  Op op(x.tape(), "detach", {&x});
  return op.finish(detach(x), [](Tensors&, Needs) { return Tensors(1); });
}

// Sines and cosines of the steps t: (B) -> (B, dim)
Tensor timestep_embedding(const Tensor& t, int64_t dim) {
  Tensor frequencies = arange(t.tape(), dim / 2, DType::float32);
  frequencies = mul_scalar(frequencies);
  frequencies = div_scalar(frequencies);
  frequencies = exp(frequencies);
  const Tensor angles = mul(unsqueeze(to(t, DType::float32), 1), unsqueeze(frequencies, 0));  // (B, dim / 2)
  const Tensor cosines = cos(angles), sines = sin(angles);
  return cat({cosines, sines}, -1);
}

// Dense, SiLU, Dense on the embedding of a step.
struct TimeEmbed : Module {
  TimeEmbed(Module& parent, std::string_view name, int64_t frequencies, int64_t width)
      : Module(parent, name),
        frequencies(frequencies),
        dense1(*this, "dense1", frequencies, width),
        dense2(*this, "dense2", width, width) {}

  Tensor operator()(const Tensor& t) const {
    Forward here(*this);
    Tensor x = timestep_embedding(t, frequencies);
    x = dense1(x);  // (B, width)
    x = silu(x);
    return dense2(x);
  }

  int64_t frequencies;
  Linear dense1, dense2;
};

// Locality self-attention: a learned temperature, and no token looks at itself.
struct LSA : Module {
  LSA(Module& parent, std::string_view name, const FsdmConfig& c)
      : Module(parent, name),
        heads(c.encoder_heads),
        dropout(c.dropout),
        temperature(parameter("temperature", {})),
        to_qkv(*this, "to_qkv", c.hdim, checked_mul(3 * c.encoder_heads, c.encoder_dim_head), false),
        to_out(*this, "to_out", checked_mul(c.encoder_heads, c.encoder_dim_head), c.hdim) {}

  Tensor operator()(const Tensor& x) const {
    Forward here(*this);
    const int64_t b = x.size(0), n = x.size(1);
    const Tensor scale = exp(temperature);
    Tensors qkv = chunk(to_qkv(x), 3, -1);
    for (Tensor& part : qkv) part = transpose(view(part, {b, n, heads, -1}), 1, 2);  // (B, H, T, D)
    Tensor dots = mul(matmul(qkv[0], transpose(qkv[1], -1, -2)), scale);             // (B, H, T, T)
    dots = masked_fill(dots, filled(tape(), "eye", {n, n}, DType::bool_));
    const Tensor attention = plimsoll::dropout(softmax(dots), dropout);
    const Tensor out = reshape(transpose(matmul(attention, qkv[2]), 1, 2), {b, n, -1});  // (B, T, H * D)
    return plimsoll::dropout(to_out(out), dropout);
  }

  int64_t heads;
  double dropout;
  Tensor temperature;
  Linear to_qkv, to_out;
};

struct EncoderLayer : Module {
  EncoderLayer(Module& parent, std::string_view name, const FsdmConfig& c)
      : Module(parent, name),
        dropout(c.dropout),
        norm1(*this, "norm1", c.hdim),
        attn(*this, "attn", c),
        norm2(*this, "norm2", c.hdim),
        dense1(*this, "dense1", c.hdim, c.encoder_mlp_dim),
        dense2(*this, "dense2", c.encoder_mlp_dim, c.hdim) {}

  Tensor operator()(const Tensor& input) const {
    Forward here(*this);
    Tensor x = norm1(input);  // (B, T, hdim)
    x = attn(x);
    x = add(input, x);
    Tensor y = norm2(x);
    y = dense1(y);  // (B, T, encoder_mlp_dim)
    y = gelu(y);
    y = plimsoll::dropout(y, dropout);
    Tensor out = dense2(y);  // (B, T, hdim)
    out = plimsoll::dropout(out, dropout);
    return add(x, out);
  }

  double dropout;
  LayerNorm norm1;
  LSA attn;
  LayerNorm norm2;
  Linear dense1, dense2;
};

// Patches of all images of a set, stacked on their channels.
struct SPTStack : Module {
  SPTStack(Module& parent, std::string_view name, const FsdmConfig& c)
      : Module(parent, name), config(c), norm(*this, "norm", width(c)), dense(*this, "dense", width(c), c.hdim) {}
  static int64_t width(const FsdmConfig& c) { return checked_mul(checked_mul(c.patch_size, c.patch_size), checked_mul(c.sample_size, 3)); }

  Tensor operator()(const Tensor& set) const {
    Forward here(*this);
    const int64_t b = set.size(0), channels = set.size(1) * set.size(2), p = config.patch_size, g = config.grid;
    Tensor x = reshape(transpose(set, 1, 2), {b, channels, set.size(3), set.size(4)});  // (B, 3 * sample_size, H, W)
    x = reshape(permute(view(x, {b, channels, g, p, g, p}), {0, 2, 4, 3, 5, 1}), {b, g * g, -1});
    x = norm(x);
    x = dense(x);  // (B, patches, hdim)
    return x;
  }

  const FsdmConfig& config;
  LayerNorm norm;
  Linear dense;
};

struct EncoderOutput {
  Tensor pooled;  // (B, hdim)
  Tensor tokens;  // (B, patches, hdim)
};

struct SetEncoder : Module {
  SetEncoder(Module& parent, std::string_view name, const FsdmConfig& c)
      : Module(parent, name),
        dropout(c.dropout),
        pos_embedding(parameter("pos_embedding", {1, c.patches() + 2, c.hdim})),
        cls_token(parameter("cls_token", {1, 1, c.hdim})),
        patch_embed(*this, "spt_stack", c),
        layers(*this, "layers"),
        mlp_norm(add_layers(c), "mlp_norm", c.hdim),
        mlp_dense(*this, "mlp_dense", c.hdim, c.hdim),
        to_time_embedding(*this, "to_time_embedding", c.hdim, c.hdim) {}

  Module& add_layers(const FsdmConfig& c) {
    for (int64_t i = 0; i < c.encoder_depth; ++i) layers.add(c);
    return *this;
  }

  // set: (B, sample_size, 3, H, W), time: (B * sample_size, hdim)
  EncoderOutput operator()(const Tensor& set, const Tensor& time) {
    Forward here(*this);
    const int64_t b = set.size(0), ns = set.size(1);
    Tensor x = patch_embed(set);                                                             // (B, patches, hdim)
    const Tensor time_token = getitem(view(to_time_embedding(time), {b, ns, -1}), 1, 0, 1);  // (B, 1, hdim)
    x = add(cat({expand(cls_token, {b, -1, -1}), time_token, x}, 1), pos_embedding);         // (B, T, hdim)
    x = plimsoll::dropout(x, dropout);
    for (EncoderLayer& layer : layers) {
      auto run = [&layer](const Tensor& h) { return layer(h); };
      x = run_block(layer, run, x);
    }
    Tensor pooled = mlp_norm(select(x, 1, 0));
    pooled = mlp_dense(pooled);
    return {pooled, slice(x, 1, 2, x.size(1))};
  }

  double dropout;
  Tensor pos_embedding, cls_token;
  SPTStack patch_embed;
  ModuleList<EncoderLayer> layers;
  LayerNorm mlp_norm;
  Linear mlp_dense, to_time_embedding;
};

// flax.linen.MultiHeadDotProductAttention
struct MultiHeadAttention : Module {
  MultiHeadAttention(Module& parent, std::string_view name, int64_t width, int64_t heads)
      : Module(parent, name),
        heads(heads),
        query(*this, "query", width, width),
        key(*this, "key", width, width),
        value(*this, "value", width, width),
        out(*this, "out", width, width) {}

  Tensor operator()(const Tensor& x, const Tensor& context) const {
    Forward here(*this);
    const int64_t b = x.size(0), n = x.size(1), m = context.size(1);
    const Tensor q = transpose(view(query(x), {b, n, heads, -1}), 1, 2);  // (B, H, T, D)
    const Tensor k = transpose(view(key(context), {b, m, heads, -1}), 1, 2);
    const Tensor v = transpose(view(value(context), {b, m, heads, -1}), 1, 2);
    const Tensor weights = softmax(scores(q, k));                                           // (B, H, T, M)
    const Tensor joined = reshape(transpose(matmul(weights, v), 1, 2), {b, n, x.size(2)});  // (B, T, C)
    return out(joined);
  }

  Tensor scores(const Tensor& q, const Tensor& k) const {
    const Tensor scaled = div_scalar(q);
    return matmul(scaled, transpose(k, -1, -2));
  }

  int64_t heads;
  Linear query, key, value, out;
};

Tensor modulate(const Tensor& x, const Tensor& shift, const Tensor& scale) {
  Tensor y = add_scalar(unsqueeze(scale, 1));  // (B, 1, C)
  y = mul(x, y);
  return add(y, unsqueeze(shift, 1));
}

Tensor norm(const Tensor& x) { return layer_norm(x, 1, {}, {}); }

struct DiTBlock : Module {
  DiTBlock(Module& parent, std::string_view name, const FsdmConfig& c, bool with_context)
      : Module(parent, name),
        dropout(c.dropout),
        adaln(*this, "adaln", c.hidden_size, checked_mul(6, c.hidden_size)),
        self_attn(*this, "self_attn", c.hidden_size, c.num_heads) {
    if (with_context) {
      context_proj = std::make_unique<Linear>(*this, "context_proj", c.hdim, c.hidden_size);
      cross_attn = std::make_unique<MultiHeadAttention>(*this, "cross_attn", c.hidden_size, c.num_heads);
    }
    dense1 = std::make_unique<Linear>(*this, "dense1", c.hidden_size, c.mlp_dim);
    dense2 = std::make_unique<Linear>(*this, "dense2", c.mlp_dim, c.hidden_size);
  }

  // x: (B, patches, C), c: (B, C), context: (B, tokens, hdim)
  Tensor operator()(const Tensor& input, const Tensor& c, const Tensor& context) const {
    Forward here(*this);
    const Tensors m = chunk(adaln(silu(c)), 6, -1);  // shift, scale and gate of the attention, the same of the MLP: (B, C)
    Tensor x = attend(input, m);
    if (cross_attn) x = look_at(x, context);
    Tensor y = norm(x);
    y = modulate(y, m[3], m[4]);
    y = (*dense1)(y);  // (B, patches, mlp_dim)
    y = gelu(y);
    y = plimsoll::dropout(y, dropout);
    Tensor out = (*dense2)(y);  // (B, patches, C)
    out = mul(unsqueeze(m[5], 1), out);
    return add(x, out);
  }

  Tensor attend(const Tensor& x, const Tensors& m) const {
    Tensor y = norm(x);
    y = modulate(y, m[0], m[1]);
    y = self_attn(y, y);
    y = mul(unsqueeze(m[2], 1), y);
    y = plimsoll::dropout(y, dropout);
    return add(x, y);
  }

  Tensor look_at(const Tensor& x, const Tensor& context) const {
    Tensor y = norm(x);
    y = (*cross_attn)(y, (*context_proj)(context));
    y = plimsoll::dropout(y, dropout);
    return add(x, y);
  }

  double dropout;
  Linear adaln;
  MultiHeadAttention self_attn;
  std::unique_ptr<Linear> context_proj;
  std::unique_ptr<MultiHeadAttention> cross_attn;
  std::unique_ptr<Linear> dense1, dense2;
};

struct FinalLayer : Module {
  FinalLayer(Module& parent, std::string_view name, const FsdmConfig& c)
      : Module(parent, name),
        adaln(*this, "adaln", c.hidden_size, 2 * c.hidden_size),
        dense(*this, "dense", c.hidden_size, checked_mul(checked_mul(c.patch_size, c.patch_size), 3)) {}

  Tensors modulation(const Tensor& c) const { return chunk(adaln(silu(c)), 2, -1); }  // shift and scale: (B, C)

  Tensor operator()(const Tensor& x, const Tensors& m) const {
    Forward here(*this);
    Tensor y = norm(x);
    y = modulate(y, m[0], m[1]);
    return dense(y);  // (B, patches, patch_size^2 * 3)
  }

  Linear adaln, dense;
};

struct DiT : Module {
  DiT(Module& parent, std::string_view name, const FsdmConfig& c)
      : Module(parent, name),
        config(c),
        pos_embed(parameter("pos_embed", {1, c.patches(), c.hidden_size})),
        patch_embed(*this, "patch_embed", 3, c.hidden_size, {.kernel = c.patch_size, .stride = c.patch_size}),
        t_embedder(*this, "t_embedder", 256, c.hidden_size),
        blocks(*this, "blocks"),
        final_layer(add_blocks(c), "final_layer", c) {}

  Module& add_blocks(const FsdmConfig& c) {
    for (int64_t i = 0; i < c.depth; ++i) blocks.add(c, c.cross_attn_blocks.contains(i));
    return *this;
  }

  Tensor operator()(const Tensor& images, const Tensor& t, const Tensor& context) {
    Forward here(*this);
    const int64_t b = images.size(0), p = config.patch_size, g = config.grid;
    Tensor x = add(transpose(flatten(patch_embed(images), 2), 1, 2), stop_gradient(pos_embed));  // (B, patches, C)
    const Tensor c = t_embedder(t);                                                              // (B, C)
    for (const DiTBlock& block : blocks) {
      auto run = [&block](const Tensors& in) { return Tensors{block(in[0], in[1], in[2])}; };
      const Tensors inputs{x, c, context};
      x = (config.use_remat ? checkpoint(tape(), checkpoint_style(block), run, inputs) : run_block(block, run, inputs)).front();
    }
    const Tensors m = final_layer.modulation(c);
    x = final_layer(x, m);
    return reshape(permute(view(x, {b, g, g, p, p, 3}), {0, 5, 1, 3, 2, 4}), {b, 3, g * p, g * p});
  }

  const FsdmConfig& config;
  Tensor pos_embed;
  Conv2d patch_embed;
  TimeEmbed t_embedder;
  ModuleList<DiTBlock> blocks;
  FinalLayer final_layer;
};

// The loss of one step: noise at random steps of a schedule, mean squared error of what the DiT makes of it.
struct FSDM : Model {
  FSDM(Build& build, const Config& c)
      : Model(build),
        config(c),
        encoder(*this, "encoder", config),
        time_embed(*this, "time_embed", config.hdim / 4, config.hdim),
        dit(*this, "dit", config) {}

  Tensors make_inputs(int64_t samples, int64_t, DType dtype) override {
    const int64_t side = config.image_size;
    return {empty(tape(), {samples, config.sample_size, 3, side, side}, dtype), empty(tape(), {samples}, DType::int64),
            empty(tape(), {checked_mul(samples, config.sample_size), 3, side, side}, dtype),
            empty(tape(), {config.diffusion_steps}, dtype)};
  }

  std::string sample(int64_t) const override {
    return fmt::format("{} images of {} x {}", config.sample_size, config.image_size, config.image_size);
  }

  Output forward(const Batch& batch) override {
    const Tensor &x = batch.own[0], &t = batch.own[1], &noise = batch.own[2], &alphas = batch.own[3];
    const int64_t images = checked_mul(x.size(0), config.sample_size);
    const Tensor time = time_embed(t);  // (B, hdim)
    const LeftOut encoded = leave_one_out(x, time);
    const Tensor context = pool(view(encoded.tokens, {images, config.patches(), config.hdim}));  // (images, tokens, hdim)
    const Tensor flat = reshape(x, {images, 3, config.image_size, config.image_size});
    const Tensor steps = repeat_interleave(t, config.sample_size, 0);  // (images)
    const Tensor alpha = unsqueeze(unsqueeze(unsqueeze(index(alphas, steps), 1), 2), 3);
    const Tensor noisy = add_noise(flat, noise, alpha);
    Tensor error = dit(noisy, steps, context);  // (images, 3, H, W)
    error = sub(error, noise);
    error = pow(error, 2);
    error = mean(error, {1, 2, 3}, false);
    return {mean(error, {}, false), {}};
  }

 private:
  // What the loop over the images of a set leaves behind.
  struct LeftOut {
    Tensor tokens;  // (B, sample_size, patches, hdim)
    Tensor set;     // the last one
    EncoderOutput last;
    Tensors pooled;  // not used by lag conditioning
  };

  LeftOut leave_one_out(const Tensor& x, const Tensor& time) {
    const int64_t b = x.size(0), ns = config.sample_size;
    LeftOut o;
    o.tokens = filled(tape(), "zeros", {b, ns, config.patches(), config.hdim}, x.dtype());
    for (int64_t i = 0; i < ns; ++i) {
      o.set = without(x, i);
      o.last = encoder(o.set, reshape(expand(unsqueeze(time, 1), {-1, ns, -1}), {checked_mul(b, ns), -1}));
      o.tokens = copy_into_slice_(o.tokens, o.last.tokens);
      o.pooled.push_back(unsqueeze(o.last.pooled, 1));
    }
    return o;
  }

  // The set without its image i, and zeros in the place of the last one.
  Tensor without(const Tensor& x, int64_t i) const {
    const Tensor rest = cat({getitem(x, 1, 0, i), getitem(x, 1, i + 1, config.sample_size)}, 1);
    const Tensor zeros = filled(tape(), "zeros", {x.size(0), 1, 3, config.image_size, config.image_size}, x.dtype());
    return cat({rest, zeros}, 1);
  }

  Tensor add_noise(const Tensor& x, const Tensor& noise, const Tensor& alpha) const {
    Tensor signal = sqrt(alpha);
    signal = mul(signal, x);
    Tensor share = rsub_scalar(alpha);
    share = sqrt(share);
    share = mul(share, noise);
    return add(signal, share);
  }

  Tensor pool(const Tensor& context) const {
    if (config.context_pool_size == 0) return context;
    const int64_t images = context.size(0), tokens = config.context_pool_size;
    return mean(reshape(context, {images, tokens, config.patches() / tokens, config.hdim}), {2}, false);
  }

  FsdmConfig config;
  SetEncoder encoder;
  TimeEmbed time_embed;
  DiT dit;
};

}  // namespace

std::unique_ptr<Model> make_fsdm(Build& build, const Config& config) { return std::make_unique<FSDM>(build, config); }

}  // namespace plimsoll
