// transformers.models.gptj: GPTJForCausalLM and GPTJForSequenceClassification. Attention is always eager, its scores in fp32;
// every layer has a table of sines and cosines as a buffer.
#include "model/family.h"
#include "nn/block_loop.h"
#include "nn/causal_lm.h"
#include "nn/feed_forward.h"
#include "nn/last_token_classifier.h"
#include "nn/layers.h"
#include "nn/masking.h"
#include "nn/rotary.h"
#include "nn/transformer.h"
#include "ops/loss.h"
#include "ops/matmul.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

struct GPTJConfig {
  explicit GPTJConfig(const Config& c)
      : vocab_size(c.size({"vocab_size"}, 50400)),
        n_positions(c.size({"n_positions", "max_position_embeddings"}, 2048)),
        n_embd(c.size({"n_embd", "hidden_size"}, 4096)),
        n_layer(c.size({"n_layer", "num_hidden_layers"}, 28)),
        n_head(c.size({"n_head", "num_attention_heads"}, 16)),
        rotary_dim(c.size({"rotary_dim"}, 64)),
        n_inner(c.size({"n_inner"}, checked_mul(4, n_embd))),
        activation_function(c.text({"activation_function"}, "gelu_new")),
        resid_pdrop(c.number({"resid_pdrop"}, 0.0)),
        embd_pdrop(c.number({"embd_pdrop"}, 0.0)),
        attn_pdrop(c.number({"attn_pdrop"}, 0.0)),
        tie_word_embeddings(c.flag({"tie_word_embeddings"}, false)) {
    reject_captured_outputs(c);
    c.require_divides("n_head", n_head, "n_embd", n_embd);
    if (c.is_null("rotary_dim") || rotary_dim % 2 != 0 || rotary_dim > head_dim())
      throw Error("[" + c.source() + "] rotary_dim must be even and at most the width of a head, " + std::to_string(head_dim()),
                  "give rotary_dim such a number");
  }
  int64_t head_dim() const { return n_embd / n_head; }
  int64_t vocab_size, n_positions, n_embd, n_layer, n_head, rotary_dim, n_inner;
  std::string activation_function;
  double resid_pdrop, embd_pdrop, attn_pdrop;
  bool tie_word_embeddings;
};

// tensor * cos + rotate_every_two(tensor) * sin. x: (B, T, H, R), tables: (1, T, R / 2)
Tensor apply_rotary(const Tensor& x, const Tensor& half_sin, const Tensor& half_cos) {
  const Tensor sin = repeat_interleave(unsqueeze(half_sin, 2), 2, 3), cos = repeat_interleave(unsqueeze(half_cos, 2), 2, 3);
  const Tensor straight = mul(x, cos);
  const Tensor turned = mul(rotate_every_two(x), sin);
  return add(straight, turned);
}

struct GPTJAttention : Module {
  GPTJAttention(Module& parent, std::string_view name, const GPTJConfig& c)
      : Module(parent, name), config(c), embed_positions(buffer("embed_positions", {c.n_positions, c.rotary_dim})) {}

  // _attn: also gives its weights, (B, H, T, T)
  Tensor attend(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask, Tensor* kept) const {
    const Tensor query = to(q, DType::float32), key = to(k, DType::float32);
    Tensor weights = matmul(query, transpose(key, -1, -2));
    weights = div_scalar(weights);
    weights = add(weights, mask);
    weights = softmax(weights);
    weights = to(weights, v.dtype());
    weights = attn_dropout(weights);
    *kept = weights;
    return matmul(weights, v);  // (B, H, T, D)
  }

  Tensor operator()(const Tensor& x, const Tensor& position_ids, const Tensor& mask, Tensor* weights) const {
    Forward here(*this);
    const int64_t r = config.rotary_dim, d = config.head_dim();
    const Dims heads{x.size(0), x.size(1), config.n_head, d};
    Tensor query = q_proj(x), key = k_proj(x), value = v_proj(x);  // (B, T, C)
    query = view(query, heads);
    key = view(key, heads);
    value = permute(view(value, heads), {0, 2, 1, 3});  // (B, H, T, D)
    const Tensor table = filled(tape(), "repeat", {1, config.n_positions, r}, DType::float32);
    const Tensor repeated_position_ids = filled(tape(), "repeat", {1, position_ids.size(1), r}, DType::int64);
    const Tensor sincos = to(filled(tape(), "gather", repeated_position_ids.sizes(), DType::float32), key.dtype());
    const Tensors parts = split(sincos, r / 2, -1);  // sin and cos, (1, T, R / 2)
    Tensor k_rot = getitem(key, 3, 0, r), q_rot = getitem(query, 3, 0, r);
    const Tensor k_pass = getitem(key, 3, r, d), q_pass = getitem(query, 3, r, d);
    k_rot = apply_rotary(k_rot, parts[0], parts[1]);
    q_rot = apply_rotary(q_rot, parts[0], parts[1]);
    key = cat({k_rot, k_pass}, -1);
    query = cat({q_rot, q_pass}, -1);
    key = permute(key, {0, 2, 1, 3});      // (B, H, T, D)
    query = permute(query, {0, 2, 1, 3});  // (B, H, T, D)
    update_cache(build(), key, value);
    Tensor out = attend(query, key, value, mask, weights);
    out = contiguous(permute(out, {0, 2, 1, 3}));
    out = view(out, x.sizes());  // (B, T, C)
    out = out_proj(out);
    out = resid_dropout(out);
    return out;
  }

  const GPTJConfig& config;
  Tensor embed_positions;
  Dropout attn_dropout{*this, "attn_dropout", config.attn_pdrop};
  Dropout resid_dropout{*this, "resid_dropout", config.resid_pdrop};
  Linear k_proj{*this, "k_proj", config.n_embd, config.n_embd, false};
  Linear v_proj{*this, "v_proj", config.n_embd, config.n_embd, false};
  Linear q_proj{*this, "q_proj", config.n_embd, config.n_embd, false};
  Linear out_proj{*this, "out_proj", config.n_embd, config.n_embd, false};
};

struct GPTJBlock : Module {
  GPTJBlock(Module& parent, std::string_view name, const GPTJConfig& c) : Module(parent, name), config(c) {}

  // Returns the hidden states and the attention's weights.
  Tensors operator()(const Tensor& x, const Tensor& position_ids, const Tensor& mask) const {
    Forward here(*this);
    Tensor weights;
    const Tensor residual = x;
    Tensor hidden = ln_1(x);  // (B, T, C)
    const Tensor attn_outputs = attn(hidden, position_ids, mask, &weights);
    const Tensor feed_forward = run_part(mlp, hidden);
    hidden = add(add(attn_outputs, feed_forward), residual);
    return {hidden, weights};
  }

  const GPTJConfig& config;
  LayerNorm ln_1{*this, "ln_1", config.n_embd};
  GPTJAttention attn{*this, "attn", config};
  FeedForward mlp{*this, "mlp", {"fc_in", "fc_out", config.n_embd, config.n_inner, config.activation_function, config.resid_pdrop}};
};

struct GPTJModel : Module {
  GPTJModel(Module& parent, std::string_view name, const GPTJConfig& c) : Module(parent, name), config(c) {}

  Module& add_blocks() {
    for (int64_t i = 0; i < config.n_layer; ++i) h.add(config);
    return *this;
  }

  Tensor operator()(const Tensor& input_ids) {
    Forward here(*this);
    require_positions("gptj", input_ids.size(1), "n_positions", config.n_positions);
    const Tensor embeds = wte(input_ids);  // (B, T, C)
    const Tensor positions = position_ids(build(), embeds.size(1));
    MaskArgs args{embeds.size(0), embeds.size(1), embeds.size(1), embeds.dtype(), positions, {}};
    args.only_eager = true;
    const Tensor mask = create_causal_mask(build(), args);
    Tensor hidden = drop(embeds);
    Tensors outputs;
    auto run = [mask, positions](const GPTJBlock& block, const Tensor& x) { return block(x, positions, mask); };
    hidden = run_blocks(h, std::move(hidden), outputs, run);
    hidden = ln_f(hidden);
    return hidden;
  }

  const Tensor& embedding() const { return wte.weight; }

  const GPTJConfig& config;
  Embedding wte{*this, "wte", config.vocab_size, config.n_embd};
  Dropout drop{*this, "drop", config.embd_pdrop};
  ModuleList<GPTJBlock> h{*this, "h"};
  LayerNorm ln_f{add_blocks(), "ln_f", config.n_embd};
};

std::unique_ptr<Model> make_gptj(Build& build, const Config& c) {
  const GPTJConfig config(c);
  const HeadSettings head{
      .body = "transformer", .width = config.n_embd, .vocab_size = config.vocab_size, .tied = config.tie_word_embeddings, .bias = true};
  return std::make_unique<CausalLM<GPTJConfig, GPTJModel>>(build, config, head);
}

std::unique_ptr<Model> make_gptj_classifier(Build& build, const Config& c) {
  const GPTJConfig config(c);
  return std::make_unique<LastTokenClassifier<GPTJConfig, GPTJModel>>(build, c, config, "transformer", config.n_embd, std::nullopt);
}

}  // namespace

const Family& gptj_family() {
  static const Family kFamily{
      .name = "gptj",
      .models = {{"gptj", {"GPTJForCausalLM"}, InputKind::lm, 2048, make_gptj},
                 {"gptj-classifier", {"GPTJForSequenceClassification"}, InputKind::cls, 2048, make_gptj_classifier}},
      .presets = {{"gpt-j-6b", R"({})", 2048}},
  };
  return kFamily;
}

}  // namespace plimsoll
