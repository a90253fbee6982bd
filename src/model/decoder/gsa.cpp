// Gated Sparse Attention (arXiv 2601.15305): GSALlamaForCausalLM of the authors' repository. Every query attends to the keys that an
// indexer chose for it. Keys and values of all queries are gathered, which is most of the memory; the indexer reaches the loss through
// indices alone, so its parameters get no gradient.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "model/family.h"
#include "nn/decoder.h"
#include "nn/layers.h"
#include "nn/model.h"
#include "nn/rotary.h"
#include "nn/transformer.h"
#include "ops/einsum.h"
#include "ops/index.h"
#include "ops/loss.h"
#include "ops/pointwise.h"
#include "ops/reduce.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

// In the training files the keys of attention are in a section of their own.
Config attention_section(const Config& c) {
  const nlohmann::json* section = c.find({"gsa"});
  if (!section) return c;
  if (!section->is_object())
    throw Error("[" + c.source() + "] gsa is " + dump(*section).substr(0, 80), "give an object: {\"k_max\": 1024}");
  return Config(c.source() + ": gsa", *section);
}

// Defaults are those of the published training run, pretrain_512m_low_memory.yaml; what that leaves out, of GSAConfig.
struct GSAConfig {
  explicit GSAConfig(const Config& c) : GSAConfig(c, attention_section(c)) {}
  GSAConfig(const Config& c, const Config& gsa)
      : d_model(c.size({"d_model"}, 512)),
        n_layers(c.size({"n_layers"}, 8)),
        n_heads(c.size({"n_heads"}, 8)),
        n_kv_heads(c.size({"n_kv_heads"}, 2)),
        d_head(c.find({"d_head"}) ? c.size({"d_head"}, 1) : d_model / n_heads),
        d_ffn(c.size({"d_ffn"}, 1536)),
        vocab_size(c.size({"vocab_size"}, 151936)),
        max_position_embeddings(c.size({"max_position_embeddings"}, 8192)),
        d_indexer(gsa.size({"d_indexer"}, 64)),
        n_indexer_heads(gsa.size({"n_indexer_heads"}, 4)),
        k_base(gsa.size({"k_base"}, 512)),
        k_min(gsa.size({"k_min"}, 64)),
        k_max(gsa.size({"k_max"}, 1024)),
        use_adaptive_k(gsa.flag({"use_adaptive_k"}, true)),
        use_value_gate(gsa.flag({"use_value_gate"}, true)),
        use_output_gate(gsa.flag({"use_output_gate"}, true)),
        relu_indexer(gsa.text({"indexer_activation"}, "sigmoid") == "relu"),
        tie_word_embeddings(c.flag({"tie_word_embeddings"}, false)),
        attention_dropout(gsa.number({"attention_dropout"}, 0.0)) {
    c.require_divides("n_heads", n_heads, "d_model", d_model);
    c.require_divides("n_kv_heads", n_kv_heads, "n_heads", n_heads);
    if (d_head % 2 != 0)
      throw Error("[" + c.source() + "] heads of " + std::to_string(d_head) + " cannot be rotated", "use an even d_head");
    if (k_min > k_base || k_base > k_max)
      throw Error("[" + gsa.source() + "] k_min " + std::to_string(k_min) + ", k_base " + std::to_string(k_base) + ", k_max " +
                      std::to_string(k_max) + " are not in order",
                  "k_min <= k_base <= k_max");
    if (const std::string act = gsa.text({"indexer_activation"}, "sigmoid"); act != "sigmoid" && act != "relu")
      throw Error("[" + gsa.source() + "] indexer_activation '" + act + "' is not known", "known: sigmoid, relu");
    if (attention_dropout < 0 || attention_dropout > 1)
      throw Error("[" + gsa.source() + "] attention_dropout " + std::to_string(attention_dropout) + " is no probability", "0 to 1");
  }
  int64_t d_model, n_layers, n_heads, n_kv_heads, d_head, d_ffn, vocab_size, max_position_embeddings;
  int64_t d_indexer, n_indexer_heads, k_base, k_min, k_max;
  bool use_adaptive_k, use_value_gate, use_output_gate, relu_indexer, tie_word_embeddings;
  double attention_dropout;
};

struct GSARMSNorm : Module {
  GSARMSNorm(Module& parent, std::string_view name, int64_t width) : Module(parent, name), weight(parameter("weight", {width})) {}

  Tensor operator()(const Tensor& x) const {
    Forward here(*this);
    Tensor hidden;
    {
      const Tensor wide = to(x, DType::float32);
      Tensor scale = mean(pow(wide, 2), {-1}, true);
      scale = add_scalar(scale);
      scale = rsqrt(scale);
      hidden = mul(wide, scale);
    }
    hidden = to(hidden, x.dtype());
    return mul(hidden, weight);
  }

  Tensor weight;
};

// ValueGate and OutputGate: a factor between 0 and 1 for each number of each head, from the layer's input.
struct Gate : Module {
  Gate(Module& parent, std::string_view name, int64_t d_model, int64_t width)
      : Module(parent, name), gate_proj(*this, "gate_proj", d_model, width) {}

  Tensor operator()(const Tensor& x, const Tensor& hidden) const {
    Forward here(*this);
    const Tensor logits = view(gate_proj(hidden), x.sizes());
    const Tensor gate = sigmoid(logits);
    return mul(x, gate);
  }

  Linear gate_proj;
};

// The tables are buffers of every layer, in fp32, and grow when a sequence is longer.
struct GSARotaryEmbedding : Module {
  GSARotaryEmbedding(Module& parent, std::string_view name, const GSAConfig& c)
      : Module(parent, name),
        dim(c.d_head),
        length(c.max_position_embeddings),
        inv_freq(buffer("inv_freq", {dim / 2})),
        cos_cached(buffer("cos_cached", {length, dim})),
        sin_cached(buffer("sin_cached", {length, dim})) {}

  CosSin operator()(const Tensor& positions) {
    Forward here(*this);
    {
      const Tensor largest = filled(tape(), "max", {}, DType::int64);  // positions.max().item()
      if (tape().dialect.rules.copies_strided_operands && !positions.is_contiguous())
        tape().allocate(checked_mul(positions.numel(), size_of(DType::int64)));
    }
    const int64_t last = tape().dialect.item ? static_cast<int64_t>(*tape().dialect.item) : positions.size(-1) - 1;
    if (last + 1 > length) extend(last + 1);
    return {index(cos_cached, positions), index(sin_cached, positions)};  // (B, T, D)
  }

  void extend(int64_t tokens) {
    length = tokens;
    const Tensor t = arange(tape(), tokens, DType::float32);
    const Tensor freqs = mul(unsqueeze(t, -1), inv_freq);
    const Tensor emb = cat({freqs, freqs}, -1);  // (T, D)
    rebind_buffer(cos_cached, cos(emb));
    rebind_buffer(sin_cached, sin(emb));
  }

  int64_t dim, length;
  Tensor inv_freq, cos_cached, sin_cached;
};

// x: (B, T, H, D); cos and sin: (B, T, 1, D) in fp32, which half types become
Tensor gsa_rotated(const Tensor& x, const Tensor& cos, const Tensor& sin) {
  const Tensor turned = rotate_half(x);
  const Tensor straight = mul(x, cos), across = mul(turned, sin);
  return add(straight, across);
}

struct GatedLightningIndexer : Module {
  GatedLightningIndexer(Module& parent, std::string_view name, const GSAConfig& c)
      : Module(parent, name), config(c), bias(parameter("bias", {c.n_indexer_heads})) {}

  Tensor operator()(const Tensor& hidden) const {
    Forward here(*this);
    const int64_t batch = hidden.size(0), tokens = hidden.size(1);
    Tensor q = q_proj(hidden);
    const Tensor k = k_proj(hidden);                                         // (B, T, D)
    q = view(q, {batch, tokens, config.n_indexer_heads, config.d_indexer});  // (B, T, H, D)
    const Tensor weights = sigmoid(weight_proj(hidden));                     // (B, T, H)
    const Tensor raw_scores = mul_scalar(einsum("bqhd,bkd->bhqk", q, k));    // (B, H, T, T)
    const Tensor gated_scores = activate(add(raw_scores, view(bias, {1, -1, 1, 1})));
    const Tensor weighted_scores = mul(gated_scores, unsqueeze(permute(weights, {0, 2, 1}), -1));
    Tensor scores = sum(weighted_scores, {1}, false);  // (B, T, T)
    const Tensor causal_mask = nondiff("triu", filled(tape(), "ones", {tokens, tokens}, DType::bool_), DType::bool_);
    scores = masked_fill(scores, unsqueeze(causal_mask, 0));
    return scores;
  }

  Tensor activate(const Tensor& x) const { return config.relu_indexer ? relu(x) : sigmoid(x); }

  const GSAConfig& config;
  Tensor bias;
  Linear q_proj{*this, "q_proj", config.d_model, checked_mul(config.n_indexer_heads, config.d_indexer), false};
  Linear k_proj{*this, "k_proj", config.d_model, config.d_indexer, false};
  Linear weight_proj{*this, "weight_proj", config.d_model, config.n_indexer_heads};
};

struct Selection {
  Tensor indices;  // (B, T, K) int64
  Tensor mask;     // (B, T, K) bool
};

struct AdaptiveTopKSelector : Module {
  AdaptiveTopKSelector(Module& parent, std::string_view name, const GSAConfig& c) : Module(parent, name), config(c) {}

  // How many keys each query takes, by the variance of its scores: (B, T)
  Tensor adaptive_k(const Tensor& scores) const {
    const Tensor valid_mask = compare_scalar("ne", scores);
    const Tensor masked_scores = masked_fill(scores, nondiff("bitwise_not", valid_mask, DType::bool_));
    const Tensor valid_counts = nondiff("_to_copy", sum(valid_mask, {-1}, false), DType::float32);
    const Tensor score_var = var(masked_scores, -1);
    Tensor var_normalized;
    {
      Tensor average = mean(score_var, {}, false);
      average = add_scalar(average);
      var_normalized = div(score_var, average);
    }
    Tensor k_scale;
    {
      Tensor spread = mul_scalar(var_normalized);
      spread = add_scalar(spread);
      k_scale = reciprocal(spread);  // 1.0 / spread holds its operand while it multiplies
      k_scale = mul_scalar(k_scale);
    }
    Tensor k_adaptive = add_scalar(k_scale);
    k_adaptive = mul_scalar(k_adaptive);
    Tensor k_values = clamp(k_adaptive);
    k_values = minimum(k_values, valid_counts);
    return nondiff("_to_copy", k_values, DType::int64);
  }

  Selection operator()(const Tensor& scores) const {
    Forward here(*this);
    const int64_t batch = scores.size(0), tokens = scores.size(1);
    const int64_t k = std::min(config.use_adaptive_k ? config.k_max : config.k_base, scores.size(2));
    const Tensor k_values = config.use_adaptive_k ? adaptive_k(scores) : filled(tape(), "full", {batch, tokens}, DType::int64);
    const Tensor scores_for_topk = masked_fill(scores, compare_scalar("eq", scores));
    const TopK top = topk(scores_for_topk, k);
    const Tensor position_indices = expand(view(arange(tape(), k), {1, 1, -1}), {batch, tokens, -1});
    Tensor mask = compare("lt", position_indices, unsqueeze(k_values, -1));
    const Tensor gathered_scores = gather(scores, -1, top.indices);
    mask = compare("bitwise_and", mask, compare_scalar("ne", gathered_scores));
    return {top.indices, mask};
  }

  const GSAConfig& config;
};

struct GatedSparseAttention : Module {
  GatedSparseAttention(Module& parent, std::string_view name, const GSAConfig& c)
      : Module(parent, name),
        config(c),
        value_gate(c.use_value_gate ? std::make_unique<Gate>(*this, "value_gate", c.d_model, c.n_kv_heads * c.d_head) : nullptr),
        output_gate(c.use_output_gate ? std::make_unique<Gate>(*this, "output_gate", c.d_model, c.n_heads * c.d_head) : nullptr) {}

  Tensor operator()(const Tensor& hidden, const Tensor& positions) {
    Forward here(*this);
    const int64_t batch = hidden.size(0), tokens = hidden.size(1);
    Tensor q = view(q_proj(hidden), {batch, tokens, config.n_heads, config.d_head});     // (B, T, H, D)
    Tensor k = view(k_proj(hidden), {batch, tokens, config.n_kv_heads, config.d_head});  // (B, T, KV, D)
    Tensor v = view(v_proj(hidden), {batch, tokens, config.n_kv_heads, config.d_head});
    if (value_gate) v = (*value_gate)(v, hidden);
    const CosSin tables = rotary_emb(positions);
    {
      const Tensor cos = unsqueeze(tables.cos, 2), sin = unsqueeze(tables.sin, 2);
      Tensor q_rotated = gsa_rotated(q, cos, sin), k_rotated = gsa_rotated(k, cos, sin);
      q = std::move(q_rotated);
      k = std::move(k_rotated);
    }
    const Tensor indexer_scores = indexer(hidden);             // (B, T, T)
    const Selection selected = topk_selector(indexer_scores);  // (B, T, K)
    Tensor attn_weights;
    Tensor attn_output = sparse_attention(q, k, v, selected, &attn_weights);  // (B, T, H, D)
    if (output_gate) attn_output = (*output_gate)(attn_output, hidden);
    attn_output = reshape(attn_output, {batch, tokens, -1});
    return o_proj(attn_output);  // (B, T, C)
  }

  Tensor sparse_attention(const Tensor& q, const Tensor& k_heads, const Tensor& v_heads, const Selection& selected,
                          Tensor* attn_weights) const {
    const Tensor k = repeat_kv(k_heads), v = repeat_kv(v_heads);  // (B, T, H, D)
    Tensor k_gathered = gather_along_seq(k, selected.indices);    // (B, T, K, H, D)
    Tensor v_gathered = gather_along_seq(v, selected.indices);
    k_gathered = permute(k_gathered, {0, 1, 3, 2, 4});  // (B, T, H, K, D)
    v_gathered = permute(v_gathered, {0, 1, 3, 2, 4});
    Tensor scores = mul_scalar(einsum("bqhd,bqhkd->bqhk", q, k_gathered));  // (B, T, H, K)
    const Tensor mask = unsqueeze(selected.mask, 2);
    scores = masked_fill(scores, nondiff("bitwise_not", mask, DType::bool_));
    *attn_weights = softmax(scores);
    *attn_weights = masked_fill(*attn_weights, nondiff("bitwise_not", mask, DType::bool_));
    *attn_weights = attn_dropout(*attn_weights);
    return einsum("bqhk,bqhkd->bqhd", *attn_weights, v_gathered);  // (B, T, H, D)
  }

  Tensor repeat_kv(const Tensor& x) const {
    const int64_t repeats = config.n_heads / config.n_kv_heads;
    if (repeats == 1) return x;
    const Dims wide{x.size(0), x.size(1), config.n_kv_heads, repeats, config.d_head};
    return reshape(expand(unsqueeze(x, 3), wide), {x.size(0), x.size(1), config.n_heads, config.d_head});
  }

  // Every query sees the whole sequence: a view, until the chosen tokens are copied out of it.
  Tensor gather_along_seq(const Tensor& x, const Tensor& indices) const {
    const int64_t batch = x.size(0), tokens = indices.size(1);
    const Tensor indices_expanded =
        expand(unsqueeze(unsqueeze(indices, -1), -1), {batch, tokens, indices.size(2), config.n_heads, config.d_head});
    const Tensor x_expanded = expand(unsqueeze(x, 1), {batch, tokens, x.size(1), config.n_heads, config.d_head});
    return gather(x_expanded, 2, indices_expanded);
  }

  const GSAConfig& config;
  Linear q_proj{*this, "q_proj", config.d_model, checked_mul(config.n_heads, config.d_head), false};
  Linear k_proj{*this, "k_proj", config.d_model, checked_mul(config.n_kv_heads, config.d_head), false};
  Linear v_proj{*this, "v_proj", config.d_model, checked_mul(config.n_kv_heads, config.d_head), false};
  Linear o_proj{*this, "o_proj", checked_mul(config.n_heads, config.d_head), config.d_model, false};
  GatedLightningIndexer indexer{*this, "indexer", config};
  AdaptiveTopKSelector topk_selector{*this, "topk_selector", config};
  std::unique_ptr<Gate> value_gate, output_gate;
  GSARotaryEmbedding rotary_emb{*this, "rotary_emb", config};
  Dropout attn_dropout{*this, "attn_dropout", config.attention_dropout};
};

struct GSADecoderLayer : Module {
  GSADecoderLayer(Module& parent, std::string_view name, const GSAConfig& c) : Module(parent, name), config(c) {}

  Tensor operator()(const Tensor& x, const Tensor& positions) {
    Forward here(*this);
    Tensor residual = x;
    Tensor hidden = input_layernorm(x);  // (B, T, C)
    const Tensor attn_output = self_attn(hidden, positions);
    hidden = add(residual, attn_output);
    residual = hidden;
    hidden = post_attention_layernorm(hidden);
    hidden = add(residual, mlp(hidden));
    return hidden;
  }

  const GSAConfig& config;
  GSARMSNorm input_layernorm{*this, "input_layernorm", config.d_model};
  GatedSparseAttention self_attn{*this, "self_attn", config};
  GSARMSNorm post_attention_layernorm{*this, "post_attention_layernorm", config.d_model};
  GatedMLP mlp{*this, "mlp", config.d_model, config.d_ffn, false, "silu"};
};

struct GSALlamaModel : Module {
  GSALlamaModel(Module& parent, std::string_view name, const GSAConfig& c) : Module(parent, name), config(c) {}

  Module& add_layers() {
    for (int64_t i = 0; i < config.n_layers; ++i) layers.add(config);
    return *this;
  }

  Tensor operator()(const Batch& batch) {
    Forward here(*this);
    const int64_t samples = batch.input_ids.size(0), tokens = batch.input_ids.size(1);
    Tensor hidden = embed_tokens(batch.input_ids);  // (B, T, C)
    const Tensor positions = batch.position_ids ? batch.position_ids : expand(unsqueeze(arange(tape(), tokens), 0), {samples, -1});
    for (GSADecoderLayer& layer : layers) {
      auto run = [&layer, positions](const Tensor& x) { return layer(x, positions); };
      hidden = run_block(layer, run, hidden);
    }
    hidden = norm(hidden);
    return hidden;
  }

  const GSAConfig& config;
  Embedding embed_tokens{*this, "embed_tokens", config.vocab_size, config.d_model};
  ModuleList<GSADecoderLayer> layers{*this, "layers"};
  GSARMSNorm norm{add_layers(), "norm", config.d_model};
};

struct GSALlamaForCausalLM : Model {
  GSALlamaForCausalLM(Build& build, const Config& c)
      : Model(build),
        config(c),
        lm_head(config.tie_word_embeddings ? std::make_unique<Linear>(*this, "lm_head", model.embed_tokens.weight, false)
                                           : std::make_unique<Linear>(*this, "lm_head", config.d_model, config.vocab_size, false)) {
    build.input_require_grads = false;  // its checkpointing is not transformers'
  }

  Output forward(const Batch& batch) override {
    const Tensor hidden = model(batch);
    const Tensor logits = (*lm_head)(hidden);  // (B, T, V)
    return {shifted_cross_entropy(logits, batch.labels), {logits}};
  }

  bool uses_cache() const override { return false; }

  GSAConfig config;
  GSALlamaModel model{*this, "model", config};
  std::unique_ptr<Linear> lm_head;
};

std::unique_ptr<Model> make_gsa(Build& build, const Config& config) { return std::make_unique<GSALlamaForCausalLM>(build, config); }

}  // namespace

const Family& gsa_family() {
  static const Family kFamily{
      .name = "gsa",
      .library = "alfredcs/Gated-Sparse-Attention",
      .models = {{"gsa", {}, InputKind::lm, 1024, make_gsa}},
      .presets = {{"gsa-512m", R"({})", 1024},
                  {"gsa-512m-768", R"({"d_model":768,"n_layers":12,"d_ffn":2048})", 2048},
                  {"gsa-1b", R"({"d_model":896,"n_layers":14,"d_ffn":2304})", 2048}},
      .levers = {{"k_max", 1024, Shrink::half, "{} keys a query instead of {}", "less time; attention sees fewer keys"},
                 {"n_layers", 8, Shrink::three_quarters, "{} layers instead of {}", "less time; a smaller model"},
                 {"d_ffn", 1536, Shrink::three_quarters, "a feed-forward of {} instead of {}", "less time; a smaller model"}},
  };
  return kFamily;
}

}  // namespace plimsoll
