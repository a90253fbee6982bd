// transformers.models.gpt_bigcode: GPTBigCodeForCausalLM and GPTBigCodeForSequenceClassification (SantaCoder, StarCoder). One
// head of keys and values for all queries.
#include "model/family.h"
#include "nn/causal_lm.h"
#include "nn/feed_forward.h"
#include "nn/last_token_classifier.h"
#include "nn/layers.h"
#include "nn/masking.h"
#include "nn/transformer.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

// attention_softmax_in_fp32 and its kin are read by the class and used nowhere.
struct GPTBigCodeConfig {
  explicit GPTBigCodeConfig(const Config& c)
      : vocab_size(c.size({"vocab_size"}, 50257)),
        n_positions(c.size({"n_positions", "max_position_embeddings"}, 1024)),
        n_embd(c.size({"n_embd", "hidden_size"}, 768)),
        n_layer(c.size({"n_layer", "num_hidden_layers"}, 12)),
        n_head(c.size({"n_head", "num_attention_heads"}, 12)),
        n_inner(c.size({"n_inner"}, checked_mul(4, n_embd))),
        activation_function(c.text({"activation_function"}, "gelu_pytorch_tanh")),
        resid_pdrop(c.number({"resid_pdrop"}, 0.1)),
        embd_pdrop(c.number({"embd_pdrop"}, 0.1)),
        attn_pdrop(c.number({"attn_pdrop"}, 0.1)),
        multi_query(c.flag({"multi_query"}, true)),
        tie_word_embeddings(c.flag({"tie_word_embeddings"}, true)) {
    reject_captured_outputs(c);
    c.require_divides("n_head", n_head, "n_embd", n_embd);
    if (c.flag({"add_cross_attention"}, false))
      throw Error("[" + c.source() + "] add_cross_attention true is not supported", "leave it false: there is no encoder to attend to");
  }
  int64_t head_dim() const { return n_embd / n_head; }
  int64_t kv_heads() const { return multi_query ? 1 : n_head; }
  int64_t vocab_size, n_positions, n_embd, n_layer, n_head, n_inner;
  std::string activation_function;
  double resid_pdrop, embd_pdrop, attn_pdrop;
  bool multi_query, tie_word_embeddings;
};

struct GPTBigCodeAttention : Module {
  GPTBigCodeAttention(Module& parent, std::string_view name, const GPTBigCodeConfig& c) : Module(parent, name), config(c) {}

  // q: (B, H, T, D), k and v: (B, 1 or H, T, D)
  Tensors split_heads(const Tensor& x) const {
    const int64_t d = config.head_dim();
    if (!config.multi_query) {
      const Tensor fused = transpose(view(c_attn(x), {x.size(0), x.size(1), config.n_head, 3 * d}), 1, 2);
      return split(fused, {d, d, d}, 3);
    }
    Tensors parts = split(unsqueeze(c_attn(x), 1), {config.n_embd, d, d}, 3);
    parts[0] = transpose(view(parts[0], {x.size(0), x.size(1), -1, d}), 1, 2);
    return parts;
  }

  Tensor operator()(const Tensor& x, const Tensor& mask, Tensor* weights) const {
    Forward here(*this);
    const Tensors qkv = split_heads(x);
    AttentionCall call;
    call.mask = mask;
    call.dropout = config.attn_pdrop;
    call.kv_groups = config.n_head / config.kv_heads();
    Tensor out = attention(build(), qkv[0], qkv[1], qkv[2], call, weights);  // (B, T, H, D)
    out = contiguous(reshape(out, {x.size(0), x.size(1), -1}));              // (B, T, C)
    out = c_proj(out);
    out = resid_dropout(out);
    return out;
  }

  const GPTBigCodeConfig& config;
  Linear c_attn{*this, "c_attn", config.n_embd, config.n_embd + 2 * config.kv_heads() * config.head_dim()};
  Linear c_proj{*this, "c_proj", config.n_embd, config.n_embd};
  Dropout resid_dropout{*this, "resid_dropout", config.resid_pdrop};
};

struct GPTBigCodeBlock : Module {
  GPTBigCodeBlock(Module& parent, std::string_view name, const GPTBigCodeConfig& c) : Module(parent, name), config(c) {}

  Tensor operator()(const Tensor& x, const Tensor& mask) const {
    Forward here(*this);
    Tensor weights, residual = x;
    Tensor hidden = ln_1(x);  // (B, T, C)
    const Tensor attn_output = run_attention(attn, hidden, &weights, mask);
    hidden = add(attn_output, residual);
    residual = hidden;
    hidden = ln_2(hidden);
    const Tensor feed_forward = run_part(mlp, hidden);
    hidden = add(residual, feed_forward);
    return hidden;
  }

  const GPTBigCodeConfig& config;
  LayerNorm ln_1{*this, "ln_1", config.n_embd};
  GPTBigCodeAttention attn{*this, "attn", config};
  LayerNorm ln_2{*this, "ln_2", config.n_embd};
  FeedForward mlp{*this, "mlp", {"c_fc", "c_proj", config.n_embd, config.n_inner, config.activation_function, config.resid_pdrop}};
};

struct GPTBigCodeModel : Module {
  GPTBigCodeModel(Module& parent, std::string_view name, const GPTBigCodeConfig& c)
      : Module(parent, name), config(c), bias(buffer("bias", {c.n_positions, c.n_positions}, DType::bool_)) {}

  Module& add_blocks() {
    for (int64_t i = 0; i < config.n_layer; ++i) h.add(config);
    return *this;
  }

  Tensor operator()(const Tensor& input_ids) {
    Forward here(*this);
    require_positions("gpt_bigcode", positions_in(build(), input_ids.size(1)), "n_positions", config.n_positions);
    const Tensor embeds = wte(input_ids);  // (B, T, C)
    const Tensor positions = position_ids(build(), embeds.size(1));
    const Tensor mask = create_causal_mask(build(), {embeds.size(0), embeds.size(1), embeds.size(1), embeds.dtype(), positions, {}});
    const Tensor position_embeds = wpe(positions);  // (1, T, C)
    Tensor hidden = add(embeds, position_embeds);
    hidden = drop(hidden);
    for (GPTBigCodeBlock& block : h) {
      auto run = [&block, mask](const Tensor& x) { return block(x, mask); };
      hidden = run_block(block, run, hidden);
    }
    hidden = ln_f(hidden);
    return hidden;
  }

  const Tensor& embedding() const { return wte.weight; }

  const GPTBigCodeConfig& config;
  Tensor bias;  // a causal mask that nothing reads any more
  Embedding wte{*this, "wte", config.vocab_size, config.n_embd};
  Embedding wpe{*this, "wpe", config.n_positions, config.n_embd};
  Dropout drop{*this, "drop", config.embd_pdrop};
  ModuleList<GPTBigCodeBlock> h{*this, "h"};
  LayerNorm ln_f{add_blocks(), "ln_f", config.n_embd};
};

std::unique_ptr<Model> make_gpt_bigcode(Build& build, const Config& c) {
  const GPTBigCodeConfig config(c);
  const HeadSettings head{.body = "transformer",
                          .width = config.n_embd,
                          .vocab_size = config.vocab_size,
                          .tied = config.tie_word_embeddings,
                          .upcast_before_4_49 = false};
  return std::make_unique<CausalLM<GPTBigCodeConfig, GPTBigCodeModel>>(build, config, head);
}

std::unique_ptr<Model> make_gpt_bigcode_classifier(Build& build, const Config& c) {
  const GPTBigCodeConfig config(c);
  return std::make_unique<LastTokenClassifier<GPTBigCodeConfig, GPTBigCodeModel>>(build, c, config, "transformer", config.n_embd,
                                                                                  std::nullopt);
}

}  // namespace

const Family& gpt_bigcode_family() {
  static const Family kFamily{
      .name = "gpt_bigcode",
      .models = {{"gpt_bigcode", {"GPTBigCodeForCausalLM"}, InputKind::lm, 1024, make_gpt_bigcode},
                 {"gpt_bigcode-classifier", {"GPTBigCodeForSequenceClassification"}, InputKind::cls, 1024, make_gpt_bigcode_classifier}},
      .presets =
          {{"santacoder", R"({"n_embd":2048,"n_layer":24,"n_head":16,"n_inner":8192,"vocab_size":49280,"n_positions":2048})", 2048},
           {"starcoderbase-1b", R"({"n_embd":2048,"n_layer":24,"n_head":16,"n_inner":8192,"vocab_size":49152,"n_positions":8192})", 8192},
           {"starcoderbase-3b", R"({"n_embd":2816,"n_layer":36,"n_head":22,"n_inner":11264,"vocab_size":49152,"n_positions":8192})", 8192},
           {"starcoderbase-7b", R"({"n_embd":4096,"n_layer":42,"n_head":32,"n_inner":16384,"vocab_size":49152,"n_positions":8192})", 8192},
           {"starcoder", R"({"n_embd":6144,"n_layer":40,"n_head":48,"n_inner":24576,"vocab_size":49152,"n_positions":8192})", 8192}},
  };
  return kFamily;
}

}  // namespace plimsoll
