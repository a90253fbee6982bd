// transformers.models.bloom: BloomForCausalLM and BloomForSequenceClassification. Attention is always eager, with a bias by
// distance (ALiBi) that is added by the product of queries and keys.
#include "model/decoder/alibi.h"
#include "model/family.h"
#include "nn/block_loop.h"
#include "nn/causal_lm.h"
#include "nn/last_token_classifier.h"
#include "nn/layers.h"
#include "nn/masking.h"
#include "nn/transformer.h"
#include "ops/loss.h"
#include "ops/matmul.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

struct BloomConfig {
  explicit BloomConfig(const Config& c)
      : vocab_size(c.size({"vocab_size"}, 250880)),
        hidden_size(c.size({"n_embed", "hidden_size"}, 64)),
        n_layer(c.size({"n_layer", "num_hidden_layers"}, 2)),
        n_head(c.size({"n_head", "num_attention_heads"}, 8)),
        hidden_dropout(c.number({"hidden_dropout"}, 0.0)),
        attention_dropout(c.number({"attention_dropout"}, 0.0)),
        residual_post_layernorm(c.flag({"apply_residual_connection_post_layernorm"}, false)),
        tie_word_embeddings(c.flag({"tie_word_embeddings"}, true)) {
    reject_captured_outputs(c);
    c.require_divides("n_head", n_head, "hidden_size", hidden_size);
    if (c.flag({"slow_but_exact"}, false) && c.integer({"pretraining_tp"}, 1) > 1)
      throw Error("[" + c.source() + "] slow_but_exact true with pretraining_tp above 1 is not supported", "leave slow_but_exact false");
  }
  int64_t vocab_size, hidden_size, n_layer, n_head;
  double hidden_dropout, attention_dropout;
  bool residual_post_layernorm, tie_word_embeddings;
};

Tensor dropout_add(const Tensor& x, const Tensor& residual, double p) {
  Tensor out = dropout(x, p);
  out = add(residual, out);
  return out;
}

// 0.5 x (1 + tanh(sqrt(2 / pi) x (1 + 0.044715 x x))): the tanh, op by op, while x is held.
Tensor inner_tanh(const Tensor& x) {
  const auto next = [](const char* op, const Tensor& t) { return nondiff(op, t, t.dtype()); };
  Tensor scaled = next("mul", x);
  Tensor factor = next("mul", x);
  factor = next("mul", factor);
  factor = next("add", factor);
  const Tensor inner = next("mul", scaled);
  scaled.reset();
  factor.reset();
  return next("tanh", inner);
}

// GeLUFunction of its own, op by op in both directions: saves its input, after it has run.
Tensor bloom_gelu(const Tensor& x) {
  const auto next = [](const char* op, const Tensor& t) { return nondiff(op, t, t.dtype()); };
  Op op(x.tape(), "GeLUFunction", {&x});
  const Tensor half = next("mul", x);
  Tensor factor = inner_tanh(x);
  factor = next("add", factor);
  Tensor out = next("mul", half);
  Saved self = op.save(x);
  return op.finish(out, [self = std::move(self), next](Tensors& g, Needs) {
    const Tensor x = self.unpack(), tanh_out = inner_tanh(x);
    Tensor left = next("mul", x);
    {
      Tensor slope = next("mul", tanh_out);
      slope = next("rsub", slope);
      Tensor curve = next("mul", x);
      curve = next("mul", curve);
      curve = next("add", curve);
      const Tensor product = next("mul", slope);
      slope.reset();
      curve.reset();
      left = next("mul", product);
    }
    Tensor right = next("add", tanh_out);
    right = next("mul", right);
    const Tensor ff = next("add", left);
    left.reset();
    right.reset();
    return Tensors{next("mul", g[0])};
  });
}

struct BloomAttention : Module {
  BloomAttention(Module& parent, std::string_view name, const BloomConfig& c) : Module(parent, name), config(c) {}

  Tensor operator()(const Tensor& x, const Tensor& residual, const Tensor& alibi, const Tensor& mask, Tensor* weights) const {
    Forward here(*this);
    const int64_t b = x.size(0), t = x.size(1), h = config.n_head, d = config.hidden_size / h;
    const Tensor fused = query_key_value(x);  // (B, T, 3 C)
    Tensor q, k, v;                           // (B, H, T, D), then (B H, T, D)
    {
      const Tensor heads = view(fused, {b, t, h, 3, d});
      q = transpose(select(heads, 3, 0), 1, 2);
      k = transpose(select(heads, 3, 1), 1, 2);
      v = transpose(select(heads, 3, 2), 1, 2);
    }
    update_cache(build(), k, v);
    q = reshape(q, {b * h, -1, d});
    k = transpose(reshape(k, {b * h, -1, d}), -1, -2);
    v = reshape(v, {b * h, -1, d});
    const Tensor attention_scores = baddbmm(alibi, q, k);  // (B H, T, T)
    Tensor attn_weights = view(attention_scores, {b, h, t, -1});
    attn_weights = add(attn_weights, mask);
    Tensor probs;
    {
      const Tensor wide = softmax(attn_weights, DType::float32);
      probs = to(wide, q.dtype());
    }
    probs = attention_dropout(probs);
    *weights = probs;
    Tensor context = bmm(view(probs, {b * h, t, -1}), v);          // (B H, T, D)
    context = permute(view(context, {b, h, t, d}), {0, 2, 1, 3});  // (B, T, H, D)
    context = reshape(context, {b, t, h * d});                     // (B, T, C)
    Tensor out = dense(context);
    out = dropout_add(out, residual, config.hidden_dropout);
    return out;
  }

  const BloomConfig& config;
  Linear query_key_value{*this, "query_key_value", config.hidden_size, 3 * config.hidden_size};
  Linear dense{*this, "dense", config.hidden_size, config.hidden_size};
  Dropout attention_dropout{*this, "attention_dropout", config.attention_dropout};
};

struct BloomMLP : Module {
  BloomMLP(Module& parent, std::string_view name, const BloomConfig& c) : Module(parent, name), config(c) {}

  Tensor operator()(const Tensor& x, const Tensor& residual) const {
    Forward here(*this);
    const Tensor hidden = bloom_gelu(dense_h_to_4h(x));        // (B, T, 4 C)
    const Tensor intermediate_output = dense_4h_to_h(hidden);  // (B, T, C)
    return dropout_add(intermediate_output, residual, config.hidden_dropout);
  }

  const BloomConfig& config;
  Linear dense_h_to_4h{*this, "dense_h_to_4h", config.hidden_size, 4 * config.hidden_size};
  Linear dense_4h_to_h{*this, "dense_4h_to_h", 4 * config.hidden_size, config.hidden_size};
};

struct BloomBlock : Module {
  BloomBlock(Module& parent, std::string_view name, const BloomConfig& c) : Module(parent, name), config(c) {}

  // Returns the hidden states and the attention's weights.
  Tensors operator()(const Tensor& x, const Tensor& alibi, const Tensor& mask) const {
    Forward here(*this);
    Tensor weights;
    Tensor layernorm_output = input_layernorm(x);  // (B, T, C)
    Tensor residual = config.residual_post_layernorm ? layernorm_output : x;
    const Tensor attention_output = self_attention(layernorm_output, residual, alibi, mask, &weights);
    layernorm_output = post_attention_layernorm(attention_output);
    residual = config.residual_post_layernorm ? layernorm_output : attention_output;
    return {mlp(layernorm_output, residual), weights};
  }

  const BloomConfig& config;
  LayerNorm input_layernorm{*this, "input_layernorm", config.hidden_size};
  BloomAttention self_attention{*this, "self_attention", config};
  LayerNorm post_attention_layernorm{*this, "post_attention_layernorm", config.hidden_size};
  BloomMLP mlp{*this, "mlp", config};
};

struct BloomModel : Module {
  BloomModel(Module& parent, std::string_view name, const BloomConfig& c) : Module(parent, name), config(c) {}

  Module& add_blocks() {
    for (int64_t i = 0; i < config.n_layer; ++i) h.add(config);
    return *this;
  }

  Tensor operator()(const Tensor& input_ids) {
    Forward here(*this);
    const Tensor embeds = word_embeddings(input_ids);  // (B, T, C)
    Tensor hidden = word_embeddings_layernorm(embeds);
    const Tensor attention_mask = filled(tape(), "ones", {embeds.size(0), embeds.size(1)}, DType::float32);
    const Tensor alibi = build_alibi_tensor(attention_mask, config.n_head, hidden.dtype());  // (B H, 1, T)
    const Tensor mask =
        create_causal_mask(build(), {embeds.size(0), embeds.size(1), embeds.size(1), embeds.dtype(), {}, {}, true, attention_mask});
    Tensors outputs;
    auto run = [alibi, mask](const BloomBlock& block, const Tensor& x) { return block(x, alibi, mask); };
    hidden = run_blocks(h, std::move(hidden), outputs, run);
    hidden = ln_f(hidden);
    return hidden;
  }

  const Tensor& embedding() const { return word_embeddings.weight; }

  const BloomConfig& config;
  Embedding word_embeddings{*this, "word_embeddings", config.vocab_size, config.hidden_size};
  LayerNorm word_embeddings_layernorm{*this, "word_embeddings_layernorm", config.hidden_size};
  ModuleList<BloomBlock> h{*this, "h"};
  LayerNorm ln_f{add_blocks(), "ln_f", config.hidden_size};
};

std::unique_ptr<Model> make_bloom(Build& build, const Config& c) {
  const BloomConfig config(c);
  const HeadSettings head{
      .body = "transformer", .width = config.hidden_size, .vocab_size = config.vocab_size, .tied = config.tie_word_embeddings};
  return std::make_unique<CausalLM<BloomConfig, BloomModel>>(build, config, head);
}

std::unique_ptr<Model> make_bloom_classifier(Build& build, const Config& c) {
  const BloomConfig config(c);
  return std::make_unique<LastTokenClassifier<BloomConfig, BloomModel>>(build, c, config, "transformer", config.hidden_size, std::nullopt);
}

}  // namespace

const Family& bloom_family() {
  static const Family kFamily{
      .name = "bloom",
      .models = {{"bloom", {"BloomForCausalLM"}, InputKind::lm, 2048, make_bloom},
                 {"bloom-classifier", {"BloomForSequenceClassification"}, InputKind::cls, 2048, make_bloom_classifier}},
      .presets = {{"bloom-560m", R"({"hidden_size":1024,"n_layer":24,"n_head":16})", 2048},
                  {"bloom-1b1", R"({"hidden_size":1536,"n_layer":24,"n_head":16})", 2048},
                  {"bloom-1b7", R"({"hidden_size":2048,"n_layer":24,"n_head":16})", 2048},
                  {"bloom-3b", R"({"hidden_size":2560,"n_layer":30,"n_head":32})", 2048},
                  {"bloom-7b1", R"({"hidden_size":4096,"n_layer":30,"n_head":32})", 2048},
                  {"bloom", R"({"hidden_size":14336,"n_layer":70,"n_head":112})", 2048}},
  };
  return kFamily;
}

}  // namespace plimsoll
