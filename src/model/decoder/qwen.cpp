// modeling_qwen.py beside the checkpoints of Qwen (1.8B to 72B, the first generation): QWenLMHeadModel, with flash attention and the norms
// and rotary positions of its own code.
#include "model/family.h"
#include "nn/causal_lm.h"
#include "nn/rotary.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

constexpr int64_t kLognPositions = 32767;  // QWenAttention: range(1, 32768)

struct QwenConfig {
  explicit QwenConfig(const Config& c)
      : vocab_size(c.size({"vocab_size"}, 151936)),
        hidden_size(c.size({"hidden_size"}, 4096)),
        num_hidden_layers(c.size({"num_hidden_layers"}, 32)),
        num_attention_heads(c.size({"num_attention_heads"}, 32)),
        head_dim(c.size({"kv_channels"}, 128)),
        intermediate_size(c.size({"intermediate_size"}, 22016)),
        max_position_embeddings(c.size({"max_position_embeddings"}, 8192)),
        no_bias(c.flag({"no_bias"}, true)),
        emb_dropout(c.number({"emb_dropout_prob"}, 0.0)),
        attn_dropout(c.number({"attn_dropout_prob"}, 0.0)),
        tie_word_embeddings(c.flag({"tie_word_embeddings"}, false)) {
    if (c.number({"rotary_pct"}, 1.0) != 1.0)
      throw Error("[" + c.source() + "] rotary_pct below 1 is not simulated", "the published checkpoints have 1.0");
    if (intermediate_size % 2 != 0)
      throw Error("[" + c.source() + "] intermediate_size " + std::to_string(intermediate_size) + " is odd",
                  "its halves are the two layers");
    if (head_dim % 2 != 0)
      throw Error("[" + c.source() + "] kv_channels " + std::to_string(head_dim) + " is odd", "halves of a head are turned");
    if (checked_mul(head_dim, num_attention_heads) != hidden_size)
      throw Error("[" + c.source() + "] kv_channels x num_attention_heads is " + std::to_string(head_dim * num_attention_heads) +
                      ", not hidden_size " + std::to_string(hidden_size),
                  "queries, keys and values are each as wide as hidden_size");
  }
  int64_t vocab_size, hidden_size, num_hidden_layers, num_attention_heads, head_dim, intermediate_size, max_position_embeddings;
  bool no_bias;
  double emb_dropout, attn_dropout;
  bool tie_word_embeddings;
};

// apply_rotary_pos_emb without flash-attention's kernel: in fp32, (B, T, H, D)
Tensor qwen_rotary(const Tensor& t, const CosSin& tables) {
  const Tensor pass = to(slice(t, -1, t.size(-1), t.size(-1)), DType::float32);
  Tensor turned = to(t, DType::float32);
  {
    const Tensor first = mul(turned, tables.cos);
    Tensor second = rotate_half(turned);
    second = mul(second, tables.sin);
    turned = add(first, second);
  }
  const Tensor joined = cat({turned, pass}, -1);
  return to(joined, t.dtype());
}

struct QwenAttention : Module {
  QwenAttention(Module& parent, std::string_view name, const QwenConfig& c)
      : Module(parent, name), config(c), logn_tensor(buffer("logn_tensor", {1, kLognPositions, 1, 1}, build().dtype)) {}

  Tensor operator()(const Tensor& x, const CosSin& tables) const {
    Forward here(*this);
    const Tensor mixed = c_attn(x);  // (B, T, 3 C)
    const Tensors parts = split(mixed, config.hidden_size, 2);
    const auto heads = [&](const Tensor& t) { return view(t, {t.size(0), t.size(1), config.num_attention_heads, config.head_dim}); };
    const Tensor query = qwen_rotary(heads(parts[0]), tables), key = qwen_rotary(heads(parts[1]), tables), value = heads(parts[2]);
    AttentionCall call;
    call.dropout = config.attn_dropout;
    Tensor out = attention(build(), transpose(query, 1, 2), transpose(key, 1, 2), transpose(value, 1, 2), call);  // (B, T, H, D)
    out = view(contiguous(out), x.sizes());
    return c_proj(out);  // (B, T, C)
  }

  const QwenConfig& config;
  Tensor logn_tensor;
  Linear c_attn{*this, "c_attn", config.hidden_size, checked_mul(3, config.hidden_size)};
  Linear c_proj{*this, "c_proj", config.hidden_size, config.hidden_size, !config.no_bias};
};

struct QwenMLP : Module {
  QwenMLP(Module& parent, std::string_view name, const QwenConfig& c) : Module(parent, name), config(c) {}

  Tensor operator()(const Tensor& x) const {
    Forward here(*this);
    const Tensor a1 = w1(x), a2 = w2(x);  // (B, T, F)
    Tensor inner;
    {
      const Tensor gate = silu(a2);
      inner = mul(a1, gate);
    }
    return c_proj(inner);  // (B, T, C)
  }

  const QwenConfig& config;
  Linear w1{*this, "w1", config.hidden_size, config.intermediate_size / 2, !config.no_bias};
  Linear w2{*this, "w2", config.hidden_size, config.intermediate_size / 2, !config.no_bias};
  Linear c_proj{*this, "c_proj", config.intermediate_size / 2, config.hidden_size, !config.no_bias};
};

struct QwenBlock : Module {
  QwenBlock(Module& parent, std::string_view name, const QwenConfig& c) : Module(parent, name), config(c) {}

  Tensor operator()(const Tensor& x, const CosSin& tables) const {
    Forward here(*this);
    Tensor normed = ln_1(x);  // (B, T, C)
    const Tensor attn_output = attn(normed, tables);
    const Tensor middle = add(attn_output, x);
    normed = ln_2(middle);
    const Tensor mlp_output = run_part(mlp, normed);
    return add(middle, mlp_output);
  }

  const QwenConfig& config;
  RMSNorm ln_1{*this, "ln_1", config.hidden_size};
  QwenAttention attn{*this, "attn", config};
  RMSNorm ln_2{*this, "ln_2", config.hidden_size};
  QwenMLP mlp{*this, "mlp", config};
};

struct QwenModel : Module {
  QwenModel(Module& parent, std::string_view name, const QwenConfig& c)
      : Module(parent, name), config(c), inv_freq(buffer("inv_freq", {c.head_dim / 2})) {}

  Module& add_blocks() {
    for (int64_t i = 0; i < config.num_hidden_layers; ++i) h.add(config);
    return *this;
  }

  // RotaryEmbedding: tables for twice as many tokens as were seen, kept
  CosSin tables_for(int64_t tokens) {
    if (!cached.cos || cached.cos.size(1) < tokens) {
      const Dims sizes{1, std::max<int64_t>(2 * tokens, 16), 1, config.head_dim};
      cached = {buffer("cos", sizes), buffer("sin", sizes)};
    }
    return {slice(cached.cos, 1, 0, tokens), slice(cached.sin, 1, 0, tokens)};
  }

  Tensor operator()(const Tensor& input_ids) {
    Forward here(*this);
    require_positions("qwen", input_ids.size(1), "max_position_embeddings", config.max_position_embeddings);
    const Tensor positions = position_ids(build(), input_ids.size(1));
    const Tensor embeds = wte(input_ids);  // (B, T, C)
    const CosSin tables = tables_for(input_ids.size(1));
    Tensor hidden = drop(embeds);
    for (QwenBlock& block : h) {
      const auto run = [&block, tables](const Tensor& x) { return block(x, tables); };
      hidden = run_block(block, run, hidden);
    }
    hidden = ln_f(hidden);
    return hidden;
  }

  const Tensor& embedding() const { return wte.weight; }

  const QwenConfig& config;
  Embedding wte{*this, "wte", config.vocab_size, config.hidden_size};
  Dropout drop{*this, "drop", config.emb_dropout};
  Tensor inv_freq;
  CosSin cached;
  ModuleList<QwenBlock> h{*this, "h"};
  RMSNorm ln_f{add_blocks(), "ln_f", config.hidden_size};
};

// The loss of its own code: logits without the last token are a copy, in their own type.
struct QwenLMHeadModel : CausalLM<QwenConfig, QwenModel> {
  using CausalLM::CausalLM;
  Output forward(const Batch& batch) override {
    if (!batch.labels || replaces_loss(build(), batch.labels)) return CausalLM::forward(batch);
    const Tensor hidden = body(batch.input_ids);
    const Tensor logits = (*head)(hidden);  // (B, T, V)
    return {shifted_cross_entropy(logits, batch.labels), {logits}};
  }
};

std::unique_ptr<Model> make_qwen(Build& build, const Config& c) {
  const QwenConfig config(c);
  HeadSettings head{
      .body = "transformer", .width = config.hidden_size, .vocab_size = config.vocab_size, .tied = config.tie_word_embeddings};
  return std::make_unique<QwenLMHeadModel>(build, config, head);
}

}  // namespace

const Family& qwen_family() {
  static const Family kFamily{
      .name = "qwen",
      .library = "modeling_qwen.py beside the weights",
      .models = {{"qwen", {"QWenLMHeadModel"}, InputKind::lm, 2048, make_qwen}},
      .presets =
          {{"qwen-1.8b", R"({"hidden_size":2048,"num_hidden_layers":24,"num_attention_heads":16,"intermediate_size":11008})", 2048},
           {"qwen-7b", R"({})", 2048},
           {"qwen-14b",
            R"({"hidden_size":5120,"num_hidden_layers":40,"num_attention_heads":40,"intermediate_size":27392,"vocab_size":152064})", 2048},
           {"qwen-72b",
            R"({"hidden_size":8192,"num_hidden_layers":80,"num_attention_heads":64,"intermediate_size":49152,"vocab_size":152064,"max_position_embeddings":32768})",
            2048}},
  };
  return kFamily;
}

}  // namespace plimsoll
