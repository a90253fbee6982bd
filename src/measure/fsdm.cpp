// Few-shot diffusion models with "lag" conditioning: a vision transformer reads each set of images with one left out, and a DiT that
// removes the noise from that one looks at its tokens. Locals are those of src/model/fsdm*.cpp.
#include "measure/live_model.h"
#include "model/diffusion/fsdm_config.h"

namespace plimsoll::measure {

namespace {

Tensor timestep_embedding(const Tensor& t, int64_t dim) {
  Tensor frequencies = torch::arange(dim / 2, torch::kFloat32);
  frequencies = frequencies * -std::log(10000.0);
  frequencies = frequencies / static_cast<double>(dim / 2);
  frequencies = torch::exp(frequencies);
  const Tensor angles = t.to(torch::kFloat32).unsqueeze(1) * frequencies.unsqueeze(0);  // (B, dim / 2)
  const Tensor cosines = torch::cos(angles), sines = torch::sin(angles);
  return torch::cat({cosines, sines}, -1);
}

struct TimeEmbed : Unit {
  TimeEmbed(const Unit& parent, std::string_view name, int64_t frequencies, int64_t width)
      : Unit(parent, name), frequencies(frequencies), dense1(*this, "dense1", frequencies, width), dense2(*this, "dense2", width, width) {}
  Tensor operator()(const Tensor& t) const {
    const Within here(place);
    Tensor x = timestep_embedding(t, frequencies);
    x = dense1(x);  // (B, width)
    x = torch::silu(x);
    return dense2(x);
  }
  int64_t frequencies;
  Linear dense1, dense2;
};

// Locality self-attention: a learned temperature, and no token looks at itself.
struct LSA : Unit {
  LSA(const Unit& parent, std::string_view name, const FsdmConfig& c)
      : Unit(parent, name),
        heads(c.encoder_heads),
        dropout(c.dropout),
        temperature(parameter("temperature", {}, {std::log(1 / std::sqrt(static_cast<double>(c.encoder_dim_head))), 0})),
        to_qkv(*this, "to_qkv", c.hdim, 3 * c.encoder_heads * c.encoder_dim_head, false),
        to_out(*this, "to_out", c.encoder_heads * c.encoder_dim_head, c.hdim) {}

  Tensor operator()(const Tensor& x) const {
    const Within here(place);
    const int64_t b = x.size(0), n = x.size(1);
    const Tensor scale = torch::exp(temperature);
    Tensors qkv = to_qkv(x).chunk(3, -1);
    for (Tensor& part : qkv) part = part.view({b, n, heads, -1}).transpose(1, 2);  // (B, H, T, D)
    Tensor dots = torch::matmul(qkv[0], qkv[1].transpose(-1, -2)) * scale;         // (B, H, T, T)
    dots = dots.masked_fill(torch::eye(n, torch::kBool), -std::numeric_limits<double>::infinity());
    const Tensor attention = torch::dropout(torch::softmax(wide(dots), -1), dropout, build.training);
    const Tensor out = torch::matmul(attention, qkv[2]).transpose(1, 2).reshape({b, n, -1});  // (B, T, H * D)
    return torch::dropout(to_out(out), dropout, build.training);
  }

  int64_t heads;
  double dropout;
  Tensor temperature;
  Linear to_qkv, to_out;
};

struct EncoderLayer : Unit {
  EncoderLayer(const Unit& parent, std::string_view name, const FsdmConfig& c)
      : Unit(parent, name),
        dropout(c.dropout),
        norm1(*this, "norm1", c.hdim),
        attn(*this, "attn", c),
        norm2(*this, "norm2", c.hdim),
        dense1(*this, "dense1", c.hdim, c.encoder_mlp_dim),
        dense2(*this, "dense2", c.encoder_mlp_dim, c.hdim) {}

  Tensor operator()(const Tensor& input) const {
    const Within here(place);
    Tensor x = norm1(input);  // (B, T, hdim)
    x = attn(x);
    x = input + x;
    Tensor y = norm2(x);
    y = dense1(y);  // (B, T, encoder_mlp_dim)
    y = torch::gelu(y, "tanh");
    y = torch::dropout(y, dropout, build.training);
    Tensor out = dense2(y);  // (B, T, hdim)
    out = torch::dropout(out, dropout, build.training);
    return x + out;
  }

  double dropout;
  LayerNorm norm1;
  LSA attn;
  LayerNorm norm2;
  Linear dense1, dense2;
};

// Patches of all images of a set, stacked on their channels.
struct SPTStack : Unit {
  SPTStack(const Unit& parent, std::string_view name, const FsdmConfig& c)
      : Unit(parent, name), c(c), norm(*this, "norm", width(c)), dense(*this, "dense", width(c), c.hdim) {}
  static int64_t width(const FsdmConfig& c) { return c.patch_size * c.patch_size * c.sample_size * 3; }

  Tensor operator()(const Tensor& set) const {
    const Within here(place);
    const int64_t b = set.size(0), channels = set.size(1) * set.size(2), p = c.patch_size, g = c.grid;
    Tensor x = set.transpose(1, 2).reshape({b, channels, set.size(3), set.size(4)});  // (B, 3 * sample_size, H, W)
    x = x.view({b, channels, g, p, g, p}).permute({0, 2, 4, 3, 5, 1}).reshape({b, g * g, -1});
    x = norm(x);
    x = dense(x);  // (B, patches, hdim)
    return x;
  }

  const FsdmConfig& c;
  LayerNorm norm;
  Linear dense;
};

struct Encoder : Unit {
  struct Output {
    Tensor pooled, tokens;
  };

  Encoder(const Unit& parent, std::string_view name, const FsdmConfig& c)
      : Unit(parent, name),
        dropout(c.dropout),
        pos_embedding(parameter("pos_embedding", {1, c.patches() + 2, c.hdim}, Init::normal(0.02))),
        cls_token(parameter("cls_token", {1, 1, c.hdim}, Init::normal(0.02))),
        patch_embed(*this, "spt_stack", c),
        layers(*this, "layers") {
    for (int64_t i = 0; i < c.encoder_depth; ++i) layers.add(c);
    mlp_norm = std::make_unique<LayerNorm>(*this, "mlp_norm", c.hdim);
    mlp_dense = std::make_unique<Linear>(*this, "mlp_dense", c.hdim, c.hdim);
    to_time_embedding = std::make_unique<Linear>(*this, "to_time_embedding", c.hdim, c.hdim);
  }

  Output operator()(const Tensor& set, const Tensor& time) const {
    const Within here(place);
    const int64_t b = set.size(0), ns = set.size(1);
    Tensor x = patch_embed(set);                                                               // (B, patches, hdim)
    const Tensor time_token = getitem((*to_time_embedding)(time).view({b, ns, -1}), 1, 0, 1);  // (B, 1, hdim)
    x = torch::cat({cls_token.expand({b, -1, -1}), time_token, x}, 1) + pos_embedding;         // (B, T, hdim)
    x = torch::dropout(x, dropout, build.training);
    for (size_t i = 0; i < layers.size(); ++i) {
      const EncoderLayer& layer = layers[i];
      x = run_block(
          layer, [&layer](const Tensor& h) { return layer(h); }, x);
    }
    Tensor pooled = (*mlp_norm)(x.select(1, 0));
    pooled = (*mlp_dense)(pooled);
    return {pooled, x.slice(1, 2, x.size(1))};
  }

  double dropout;
  Tensor pos_embedding, cls_token;
  SPTStack patch_embed;
  UnitList<EncoderLayer> layers;
  std::unique_ptr<LayerNorm> mlp_norm;
  std::unique_ptr<Linear> mlp_dense, to_time_embedding;
};

struct MultiHeadAttention : Unit {
  MultiHeadAttention(const Unit& parent, std::string_view name, int64_t width, int64_t heads)
      : Unit(parent, name),
        heads(heads),
        query(*this, "query", width, width),
        key(*this, "key", width, width),
        value(*this, "value", width, width),
        out(*this, "out", width, width) {}

  Tensor operator()(const Tensor& x, const Tensor& context) const {
    const Within here(place);
    const int64_t b = x.size(0), n = x.size(1), m = context.size(1);
    const Tensor q = query(x).view({b, n, heads, -1}).transpose(1, 2);  // (B, H, T, D)
    const Tensor k = key(context).view({b, m, heads, -1}).transpose(1, 2);
    const Tensor v = value(context).view({b, m, heads, -1}).transpose(1, 2);
    const Tensor weights = torch::softmax(wide(scores(q, k)), -1);                               // (B, H, T, M)
    const Tensor joined = torch::matmul(weights, v).transpose(1, 2).reshape({b, n, x.size(2)});  // (B, T, C)
    return out(joined);
  }

  static Tensor scores(const Tensor& q, const Tensor& k) {
    const Tensor scaled = q / std::sqrt(static_cast<double>(q.size(-1)));
    return torch::matmul(scaled, k.transpose(-1, -2));
  }

  int64_t heads;
  Linear query, key, value, out;
};

Tensor modulate(const Tensor& x, const Tensor& shift, const Tensor& scale) {
  Tensor y = scale.unsqueeze(1) + 1.0;  // (B, 1, C)
  y = x * y;
  return y + shift.unsqueeze(1);
}

Tensor normalised(const Tensor& x) { return torch::layer_norm(wide(x), {x.size(-1)}); }

struct DiTBlock : Unit {
  DiTBlock(const Unit& parent, std::string_view name, const FsdmConfig& c, bool with_context)
      : Unit(parent, name),
        dropout(c.dropout),
        adaln(*this, "adaln", c.hidden_size, 6 * c.hidden_size),
        self_attn(*this, "self_attn", c.hidden_size, c.num_heads),
        context_proj(with_context ? std::make_unique<Linear>(*this, "context_proj", c.hdim, c.hidden_size) : nullptr),
        cross_attn(with_context ? std::make_unique<MultiHeadAttention>(*this, "cross_attn", c.hidden_size, c.num_heads) : nullptr),
        dense1(*this, "dense1", c.hidden_size, c.mlp_dim),
        dense2(*this, "dense2", c.mlp_dim, c.hidden_size) {}

  Tensor operator()(const Tensor& input, const Tensor& c, const Tensor& context) const {
    const Within here(place);
    const Tensors m = adaln(torch::silu(c)).chunk(6, -1);  // (B, C) each
    Tensor x = attend(input, m);
    if (cross_attn) x = look_at(x, context);
    Tensor y = normalised(x);
    y = modulate(y, m[3], m[4]);
    y = dense1(y);  // (B, patches, mlp_dim)
    y = torch::gelu(y, "tanh");
    y = torch::dropout(y, dropout, build.training);
    Tensor out = dense2(y);  // (B, patches, C)
    out = m[5].unsqueeze(1) * out;
    return x + out;
  }

  Tensor attend(const Tensor& x, const Tensors& m) const {
    Tensor y = normalised(x);
    y = modulate(y, m[0], m[1]);
    y = self_attn(y, y);
    y = m[2].unsqueeze(1) * y;
    y = torch::dropout(y, dropout, build.training);
    return x + y;
  }

  Tensor look_at(const Tensor& x, const Tensor& context) const {
    Tensor y = normalised(x);
    y = (*cross_attn)(y, (*context_proj)(context));
    y = torch::dropout(y, dropout, build.training);
    return x + y;
  }

  double dropout;
  Linear adaln;
  MultiHeadAttention self_attn;
  std::unique_ptr<Linear> context_proj;
  std::unique_ptr<MultiHeadAttention> cross_attn;
  Linear dense1, dense2;
};

struct FinalLayer : Unit {
  FinalLayer(const Unit& parent, std::string_view name, const FsdmConfig& c)
      : Unit(parent, name),
        adaln(*this, "adaln", c.hidden_size, 2 * c.hidden_size),
        dense(*this, "dense", c.hidden_size, c.patch_size * c.patch_size * 3) {}

  Tensors modulation(const Tensor& c) const { return adaln(torch::silu(c)).chunk(2, -1); }

  Tensor operator()(const Tensor& x, const Tensors& m) const {
    const Within here(place);
    Tensor y = normalised(x);
    y = modulate(y, m[0], m[1]);
    return dense(y);  // (B, patches, patch_size^2 * 3)
  }

  Linear adaln, dense;
};

struct DiT : Unit {
  DiT(const Unit& parent, std::string_view name, const FsdmConfig& c)
      : Unit(parent, name),
        c(c),
        pos_embed(parameter("pos_embed", {1, c.patches(), c.hidden_size}, Init::normal(0.02))),
        patch_embed(*this, "patch_embed", 3, c.hidden_size, c.patch_size, c.patch_size),
        t_embedder(*this, "t_embedder", 256, c.hidden_size),
        blocks(*this, "blocks") {
    for (int64_t i = 0; i < c.depth; ++i) blocks.add(c, c.cross_attn_blocks.contains(i));
    final_layer = std::make_unique<FinalLayer>(*this, "final_layer", c);
  }

  Tensor operator()(const Tensor& images, const Tensor& t, const Tensor& context) const {
    const Within here(place);
    const int64_t b = images.size(0), p = c.patch_size, g = c.grid;
    Tensor x = patch_embed(images).flatten(2).transpose(1, 2) + pos_embed.detach();  // (B, patches, C)
    const Tensor time = t_embedder(t);                                               // (B, C)
    for (size_t i = 0; i < blocks.size(); ++i) {
      const DiTBlock& block = blocks[i];
      const auto run = [&block](const Tensors& in) { return Tensors{block(in[0], in[1], in[2])}; };
      const Tensors inputs{x, time, context};
      x = (c.use_remat || build.checkpointing ? checkpoint(run, inputs) : run(inputs)).front();
    }
    const Tensors m = final_layer->modulation(time);
    x = (*final_layer)(x, m);
    return x.view({b, g, g, p, p, 3}).permute({0, 5, 1, 3, 2, 4}).reshape({b, 3, g * p, g * p});
  }

  const FsdmConfig& c;
  Tensor pos_embed;
  Conv2d patch_embed;
  TimeEmbed t_embedder;
  UnitList<DiTBlock> blocks;
  std::unique_ptr<FinalLayer> final_layer;
};

class FSDM : public LiveModel, public Unit {
 public:
  FSDM(Build& build, const Config& config)
      : Unit(build),
        c_(config),
        encoder_(*this, "encoder", c_),
        time_embed_(*this, "time_embed", c_.hdim / 4, c_.hdim),
        dit_(*this, "dit", c_) {}

  // Images, steps, noise and the schedule: the share of the signal after each step.
  Tensors make_inputs(int64_t samples) override {
    const int64_t side = c_.image_size;
    Tensors inputs{torch::empty({samples, c_.sample_size, 3, side, side}), torch::empty({samples}, torch::kInt64),
                   torch::empty({samples * c_.sample_size, 3, side, side}), torch::empty({c_.diffusion_steps})};
    double share = 1;
    for (int64_t i = 0; i < c_.diffusion_steps; ++i) {  // betas from 1e-4 to 0.02 at 1000 steps, scaled to as many as there are
      const double scale = 1000.0 / static_cast<double>(c_.diffusion_steps);
      const double place = c_.diffusion_steps > 1 ? static_cast<double>(i) / static_cast<double>(c_.diffusion_steps - 1) : 0;
      share *= 1 - std::min(0.999, scale * (1e-4 + (0.02 - 1e-4) * place));
      inputs[3].data_ptr<float>()[i] = static_cast<float>(share);
    }
    return inputs;
  }

  void fill(const Tensors& inputs, int64_t row, const Data& data, int64_t sample) const override {
    const int64_t values = c_.sample_size * 3 * c_.image_size * c_.image_size;
    data.images(sample, c_.sample_size, 3, c_.image_size, c_.image_size, inputs[0].data_ptr<float>() + row * values);
    std::mt19937_64 numbers = data.random(sample, 4);
    inputs[1].data_ptr<int64_t>()[row] = static_cast<int64_t>(numbers() % static_cast<uint64_t>(c_.diffusion_steps));
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < values; ++i) inputs[2].data_ptr<float>()[row * values + i] = normal(numbers);
  }

  Tensor loss(const Tensors& inputs) override {
    const Tensor &x = inputs[0], &t = inputs[1], &noise = inputs[2], &alphas = inputs[3];
    const int64_t images = x.size(0) * c_.sample_size;
    const Tensor time = time_embed_(t);  // (B, hdim)
    const LeftOut encoded = leave_one_out(x, time);
    const Tensor context = pool(encoded.tokens.view({images, c_.patches(), c_.hdim}));  // (images, tokens, hdim)
    const Tensor flat = x.reshape({images, 3, c_.image_size, c_.image_size});
    const Tensor steps = t.unsqueeze(1).expand({-1, c_.sample_size}).clone(torch::MemoryFormat::Contiguous).view({-1});  // (images)
    const Tensor alpha = alphas.index({steps}).unsqueeze(1).unsqueeze(2).unsqueeze(3);
    const Tensor noisy = add_noise(flat, noise, alpha);
    Tensor error = dit_(noisy, steps, context);  // (images, 3, H, W)
    error = error - noise;
    error = wide(error).pow(2);
    error = error.mean({1, 2, 3});
    return error.mean();
  }

 private:
  struct LeftOut {
    Tensor tokens, set;
    Encoder::Output last;
    Tensors pooled;
  };

  LeftOut leave_one_out(const Tensor& x, const Tensor& time) const {
    const int64_t b = x.size(0), ns = c_.sample_size;
    LeftOut o;
    o.tokens = torch::zeros({b, ns, c_.patches(), c_.hdim});
    for (int64_t i = 0; i < ns; ++i) {
      o.set = without(x, i);
      o.last = encoder_(o.set, time.unsqueeze(1).expand({-1, ns, -1}).reshape({b * ns, -1}));
      o.tokens.select(1, i).copy_(o.last.tokens);
      o.pooled.push_back(o.last.pooled.unsqueeze(1));
    }
    return o;
  }

  Tensor without(const Tensor& x, int64_t i) const {
    const Tensor rest = torch::cat({getitem(x, 1, 0, i), getitem(x, 1, i + 1, c_.sample_size)}, 1);
    const Tensor zeros = torch::zeros({x.size(0), 1, 3, c_.image_size, c_.image_size});
    return torch::cat({rest, zeros}, 1);
  }

  static Tensor add_noise(const Tensor& x, const Tensor& noise, const Tensor& alpha) {
    Tensor signal = torch::sqrt(alpha);
    signal = signal * x;
    Tensor share = torch::rsub(alpha, 1.0);
    share = torch::sqrt(share);
    share = share * noise;
    return signal + share;
  }

  Tensor pool(const Tensor& context) const {
    if (c_.context_pool_size == 0) return context;
    const int64_t tokens = c_.context_pool_size;
    return context.reshape({context.size(0), tokens, c_.patches() / tokens, c_.hdim}).mean(2);
  }

  FsdmConfig c_;
  Encoder encoder_;
  TimeEmbed time_embed_;
  DiT dit_;
};

}  // namespace

std::unique_ptr<LiveModel> make_live_fsdm(Build& build, const Job& job) { return std::make_unique<FSDM>(build, job.config); }

}  // namespace plimsoll::measure
