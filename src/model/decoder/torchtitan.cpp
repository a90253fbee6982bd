// torchtitan: models/llama3/model/model.py and experiments/qwen3/model/model.py.
#include "model/decoder/torchtitan.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "model/resolve.h"
#include "nn/gemma.h"
#include "nn/rotary.h"
#include "nn/tensor_parallel.h"
#include "nn/transformer.h"
#include "ops/attention.h"
#include "ops/complex.h"
#include "ops/dtensor.h"
#include "ops/norm.h"
#include "ops/pointwise.h"
#include "ops/reduce.h"
#include "ops/reshape.h"
#include "ops/ring_attention.h"
#include "util/text.h"

namespace plimsoll {

namespace {

struct TitanShape {
  const TorchtitanConfig& config;
  const TorchtitanSettings& settings;
};

// Its own RMSNorm till 2025-04, then torch.nn.RMSNorm, which has a kernel since PyTorch 2.9.
struct TitanNorm : Module {
  TitanNorm(Module& parent, std::string_view name, int64_t width, bool written_out)
      : Module(parent, name), fused(!written_out && tape().dialect.torch >= Version{2, 9}) {
    weight = parameter("weight", {width});
    if (!build().tensor_parallel) return;
    weight.parameter()->is_dtensor = true;
    weight.parameter()->gradient_placement = GradientPlacement::partial;
  }

  // A norm of heads gets a DTensor already.
  Tensor operator()(const Tensor& input, bool of_heads = false) const {
    Forward here(*this);
    const Tensor x = build().tensor_parallel && !of_heads ? from_local(input) : input;
    if (fused) return rms_norm(x, weight);
    Tensor output;
    {
      Tensor wide;
      {
        const Tensor argument = to(x, DType::float32);
        wide = rms_normalised(argument);
      }
      output = to(wide, x.dtype());
    }
    return mul(output, weight);
  }

  Tensor weight;
  bool fused;
};

Tensor repeated(const Tensor& x, int64_t groups) {  // (B, T, KV, D) -> (B, T, H, D)
  if (groups == 1) return x;
  const Dims s = x.sizes();
  return reshape(expand(unsqueeze(x, 3), {s[0], s[1], s[2], groups, s[3]}), {s[0], s[1], s[2] * groups, s[3]});
}

struct TitanAttention : Module {
  TitanAttention(Module& parent, std::string_view name, const TitanShape& s)
      : Module(parent, name),
        config(s.config),
        settings(s.settings),
        q_norm(norm_of_heads("q_norm")),
        k_norm(norm_of_heads("k_norm")),
        wq(*this, "wq", config.dim, config.heads * config.head_dim, false),
        wk(*this, "wk", config.dim, config.kv_heads * config.head_dim, false),
        wv(*this, "wv", config.dim, config.kv_heads * config.head_dim, false),
        wo(*this, "wo", config.heads * config.head_dim, config.dim, false) {
    if (const TensorParallel* tp = build().tensor_parallel) {
      tp->share("num_attention_heads", config.heads);
      tp->share("num_key_value_heads", config.kv_heads);
    }
  }

  std::unique_ptr<TitanNorm> norm_of_heads(const char* name) {
    return config.qwen3 ? std::make_unique<TitanNorm>(*this, name, config.head_dim, false) : nullptr;
  }

  // Both are turned in fp32 before either is cast.
  static std::pair<Tensor, Tensor> turned(const Tensor& q, const Tensor& k, const Tensor& table) {
    const Tensor q_pairs = in_complex_pairs(q), k_pairs = in_complex_pairs(k);
    const Tensor freqs = view(table, {1, table.size(0), 1, table.size(1)});
    const Tensor q_out = flatten(view_as_real(complex_mul(q_pairs, freqs)), 3);
    const Tensor k_out = flatten(view_as_real(complex_mul(k_pairs, freqs)), 3);
    Tensor q_cast = to(q_out, q.dtype());
    return {q_cast, to(k_out, k.dtype())};
  }

  std::pair<Tensor, Tensor> rotated(const Tensor& q, const Tensor& k, const Tensor& table) const {
    const Tensor cache = view(table, {-1, q.size(1), 1, 2 * config.head_dim});
    const Tensor cos = to(slice(cache, -1, 0, config.head_dim), q.dtype());
    const Tensor sin = to(slice(cache, -1, config.head_dim, 2 * config.head_dim), q.dtype());
    Tensor q_out = rotate(q, cos, sin);
    return {q_out, rotate(k, cos, sin)};
  }

  Tensor operator()(const Tensor& input, const Tensor& table) const {
    Forward here(*this);
    const Tensor x = enter_parallel(build(), input);
    const Dims heads{x.size(0), x.size(1), -1, config.head_dim};
    Tensor q = wq(x), k = wk(x), v = wv(x);
    q = view(q, heads);
    k = view(k, heads);
    v = view(v, heads);
    if (q_norm) q = (*q_norm)(q, true);
    if (k_norm) k = (*k_norm)(k, true);
    const Tensor local = slice(table, 0, 0, x.size(1));
    std::tie(q, k) = config.qwen3 ? rotated(q, k, local) : turned(q, k, local);
    const int64_t groups = config.heads / config.kv_heads;
    const Tensor keys = repeated(k, groups), values = repeated(v, groups);  // (B, T, H, D)
    q = transpose(q, 1, 2);
    k = transpose(keys, 1, 2);
    v = transpose(values, 1, 2);
    Tensor out = settings.context > 1 ? ring_attention(q, k, v, {settings.context, settings.gathers_context})
                                      : scaled_dot_product_attention(q, k, v, {.mask = {}, .dropout = 0, .causal = true, .grouped = false});
    out = contiguous(transpose(out, 1, 2));
    out = view(out, {x.size(0), x.size(1), -1});
    return wo(out);
  }

  const TorchtitanConfig& config;
  const TorchtitanSettings& settings;
  std::unique_ptr<TitanNorm> q_norm, k_norm;
  Linear wq, wk, wv, wo;
};

struct TitanFeedForward : Module {
  TitanFeedForward(Module& parent, std::string_view name, const TorchtitanConfig& c)
      : Module(parent, name),
        w1(*this, "w1", c.dim, c.ffn, false),
        w2(*this, "w2", c.ffn, c.dim, false),
        w3(*this, "w3", c.dim, c.ffn, false) {}

  Tensor operator()(const Tensor& input) const {
    Forward here(*this);
    const Tensor x = enter_parallel(build(), input);
    Tensor inner;
    {
      const Tensor gate = activation("silu", w1(x));
      inner = mul(gate, w3(x));
    }
    return w2(inner);
  }

  Linear w1, w2, w3;
};

struct TitanBlock : Module {
  TitanBlock(Module& parent, std::string_view name, const TitanShape& s)
      : Module(parent, name),
        attention(*this, "attention", s),
        feed_forward(*this, "feed_forward", s.config),
        attention_norm(*this, "attention_norm", s.config.dim, s.settings.own_norms()),
        ffn_norm(*this, "ffn_norm", s.config.dim, s.settings.own_norms()) {}

  Tensor operator()(const Tensor& x, const Tensor& table) const {
    Forward here(*this);
    const Tensor h = plus(x, attention_norm, [&](const Tensor& y) { return attention(y, table); });
    return plus(h, ffn_norm, feed_forward);
  }

  // x + branch(norm(x)), where what is normalised is gone when the branch returns
  template <class Branch>
  static Tensor plus(const Tensor& x, const TitanNorm& norm, const Branch& branch) {
    Tensor y;
    {
      const Tensor normalised = norm(x);
      y = branch(normalised);
    }
    return add(x, y);
  }

  TitanAttention attention;
  TitanFeedForward feed_forward;
  TitanNorm attention_norm, ffn_norm;
};

// fully_shard([model.norm, model.output]): one group.
struct TitanHead : Module {
  TitanHead(Module& parent, std::string_view name, const TitanShape& s)
      : Module(parent, name),
        norm(*this, "norm", s.config.dim, s.settings.own_norms()),
        output(*this, "output", s.config.dim, s.config.vocab, false) {}

  // `h` is gone when it is normalised.
  Tensor operator()(Tensor h) const {
    ModuleHooks* const hooks = is_wrapped(*this) ? build().hooks : nullptr;
    if (hooks) h = hooks->before_forward(*this, {std::move(h)})[0];
    h = norm(h);
    Tensor logits = output(h);
    return hooks ? hooks->after_forward(*this, {logits})[0] : logits;
  }

  TitanNorm norm;
  Linear output;
};

}  // namespace

std::vector<std::string> torchtitan_families() { return {"llama", "qwen3"}; }

TorchtitanConfig::TorchtitanConfig(const std::string& family, const Config& c) : qwen3(family == "qwen3") {
  if (family != "llama" && !qwen3)
    throw Error(
        "[torchtitan] " + family + ": its code is not simulated",
        "take a model of " + join(torchtitan_families(), " or ") + "; with experts, Megatron-LM's layout: --megatron world=64,expert=8");
  layers = c.size({"num_hidden_layers"}, 32);
  dim = c.size({"hidden_size"}, 4096);
  ffn = c.size({"intermediate_size"}, qwen3 ? 22016 : 11008);
  heads = c.size({"num_attention_heads"}, 32);
  kv_heads = c.is_null("num_key_value_heads") ? heads : c.size({"num_key_value_heads"}, heads);
  c.require_divides("num_key_value_heads", kv_heads, "num_attention_heads", heads);
  if (!qwen3) c.require_divides("num_attention_heads", heads, "hidden_size", dim);
  head_dim = qwen3 ? c.size({"head_dim"}, 128) : dim / heads;
  vocab = c.size({"vocab_size"}, qwen3 ? 151936 : 32000);
}

const TorchtitanModel* torchtitan_model(const Job& job) {
  const std::vector<std::string> families = torchtitan_families();
  if (std::find(families.begin(), families.end(), job.family) == families.end()) return nullptr;
  const TorchtitanConfig shape(job.family, job.config);
  for (const TorchtitanModel& m : torchtitan_models())
    for (const Preset& p : presets())
      if (std::string_view(p.name) == m.preset && p.family == job.family &&
          TorchtitanConfig(p.family, Config(p.name, nlohmann::json::parse(p.config))) == shape)
        return &m;
  return nullptr;
}

std::vector<int64_t> torchtitan_split(int64_t layers, int64_t parts, bool ends_count) {
  if (parts == 1) return {layers};
  const int64_t ends = ends_count ? 2 : 0, all = layers + ends, least = all / parts, more = all % parts;
  std::vector<int64_t> out;
  for (int64_t i = 0; i < parts; ++i) {
    const bool first = i == 0, last = i == parts - 1;
    if (ends_count)
      out.push_back(least + (i < more) - first - last);
    else
      out.push_back(least + (first ? 0 : last ? std::max<int64_t>(0, more - (parts - 2)) : i <= more));
  }
  for (size_t i = 0; i < out.size(); ++i)
    if (out[i] < 1)
      throw Error(fmt::format("[torchtitan] {} layers over {} stages leave stage {} without one", layers, parts, i),
                  fmt::format("at most {} stages (times chunks), or give layers", ends_count ? all / 2 : layers));
  return out;
}

struct TorchtitanPart::Parts {
  Parts(Module& model, const TorchtitanConfig& c, const TorchtitanSettings& s, const Place& p) : shape{c, s}, layers(model, "layers") {
    for (int64_t i = 0; i < p.count; ++i) layers.add(shape);
  }

  TitanShape shape;
  std::unique_ptr<Embedding> tok_embeddings;
  ModuleList<TitanBlock> layers;
  std::unique_ptr<TitanHead> head;
  Tensor table;
};

TorchtitanPart::TorchtitanPart(Build& build, const TorchtitanConfig& c, const TorchtitanSettings& s, const Place& p, int64_t positions)
    : Model(build) {
  std::unique_ptr<Embedding> embedding;
  if (p.embeds) embedding = std::make_unique<Embedding>(*this, "tok_embeddings", c.vocab, c.dim);
  parts_ = std::make_unique<Parts>(*this, c, s, p);
  parts_->tok_embeddings = std::move(embedding);
  if (p.has_head) parts_->head = std::make_unique<TitanHead>(*this, "head", parts_->shape);
  parts_->table =
      c.qwen3 ? buffer("rope_cache", {positions, 2 * c.head_dim}) : buffer("freqs_cis", {positions, c.head_dim / 2}, kComplex64);
}

TorchtitanPart::~TorchtitanPart() = default;

Output TorchtitanPart::forward(const Batch& batch) {
  Forward here(*this);
  Tensor h = parts_->tok_embeddings ? (*parts_->tok_embeddings)(batch.input_ids) : batch.own.front();
  for (size_t i = 0; i < parts_->layers.size(); ++i) {
    const TitanBlock& layer = parts_->layers[i];
    const Tensor& table = parts_->table;
    // fully_shard casts an argument in fp32 for every block, and complex numbers for none.
    const auto run = [&layer, table](const Tensors& in) -> Tensors { return {layer(in[0], in.size() > 1 ? in[1] : table)}; };
    h = run_block(layer, run, parts_->shape.config.qwen3 ? Tensors{h, table} : Tensors{h})[0];
  }
  if (parts_->head) h = (*parts_->head)(std::move(h));
  if (parts_->head && parts_->shape.settings.casts_in_model()) h = to(h, DType::float32);
  return {{}, {h}};
}

std::vector<const Module*> TorchtitanPart::sharded_modules() const {
  std::vector<const Module*> out;
  const bool ends = parts_->shape.settings.wraps_ends();
  if (ends && parts_->tok_embeddings) out.push_back(parts_->tok_embeddings.get());
  for (size_t i = 0; i < parts_->layers.size(); ++i) out.push_back(&parts_->layers[i]);
  if (ends && parts_->head) out.push_back(parts_->head.get());
  return out;
}

}  // namespace plimsoll
