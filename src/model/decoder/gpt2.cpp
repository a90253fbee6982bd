// transformers.models.gpt2: GPT2LMHeadModel and GPT2ForSequenceClassification.
#include "model/family.h"
#include "nn/causal_lm.h"
#include "nn/last_token_classifier.h"
#include "nn/layers.h"
#include "nn/masking.h"
#include "nn/transformer.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

struct GPT2Config {
  explicit GPT2Config(const Config& c)
      : vocab_size(c.size({"vocab_size"}, 50257)),
        n_positions(c.size({"n_positions", "max_position_embeddings"}, 1024)),
        n_embd(c.size({"n_embd", "hidden_size"}, 768)),
        n_layer(c.size({"n_layer", "num_hidden_layers"}, 12)),
        n_head(c.size({"n_head", "num_attention_heads"}, 12)),
        n_inner(c.integer({"n_inner"}, checked_mul(4, n_embd))),
        act(c.text({"activation_function"}, "gelu_new")),
        resid_pdrop(c.number({"resid_pdrop"}, 0.1)),
        embd_pdrop(c.number({"embd_pdrop"}, 0.1)),
        attn_pdrop(c.number({"attn_pdrop"}, 0.1)),
        tied(c.flag({"tie_word_embeddings"}, true)) {
    c.require_divides("n_head", n_head, "n_embd", n_embd);
    for (const char* key : {"add_cross_attention", "reorder_and_upcast_attn"})
      if (c.flag({key}, false)) throw Error(std::string("[gpt2] ") + key + " true is not supported", std::string("remove ") + key);
  }
  int64_t vocab_size, n_positions, n_embd, n_layer, n_head, n_inner;
  std::string act;
  double resid_pdrop, embd_pdrop, attn_pdrop;
  bool tied;
};

struct GPT2Attention : Module {
  GPT2Attention(Module& parent, std::string_view name, const GPT2Config& c) : Module(parent, name), config(c) {
    if (build().legacy()) buffer("bias", {1, 1, c.n_positions, c.n_positions}, DType::bool_);  // the causal mask
  }

  Tensor operator()(const Tensor& x, const Tensor& mask, Tensor* weights) const {
    Forward here(*this);
    const Tensors qkv = split(c_attn(x), config.n_embd, 2);  // 3 x (B, T, C)
    const Dims heads{x.size(0), x.size(1), -1, config.n_embd / config.n_head};
    const Tensor k = transpose(view(qkv[1], heads), 1, 2);  // (B, H, T, D)
    const Tensor v = transpose(view(qkv[2], heads), 1, 2);
    const Tensor q = transpose(view(qkv[0], heads), 1, 2);
    AttentionCall call;
    call.mask = mask;
    call.dropout = config.attn_pdrop;
    call.has_kv_groups = false;
    call.softmax_fp32 = false;
    call.contiguous_eager = false;
    Tensor out = attention(build(), q, k, v, call, weights);     // (B, T, H, D)
    out = contiguous(reshape(out, {x.size(0), x.size(1), -1}));  // (B, T, C)
    out = c_proj(out);
    out = resid_dropout(out);
    return out;
  }

  const GPT2Config& config;
  Conv1D c_attn{*this, "c_attn", 3 * config.n_embd, config.n_embd};
  Conv1D c_proj{*this, "c_proj", config.n_embd, config.n_embd};
  Dropout resid_dropout{*this, "resid_dropout", config.resid_pdrop};
};

struct GPT2MLP : Module {
  GPT2MLP(Module& parent, std::string_view name, const GPT2Config& c) : Module(parent, name), config(c) {}

  Tensor operator()(const Tensor& x) const {
    Forward here(*this);
    Tensor hidden = c_fc(x);  // (B, T, 4C)
    hidden = activation(*this, config.act, hidden);
    hidden = c_proj(hidden);  // (B, T, C)
    hidden = dropout(hidden);
    return hidden;
  }

  const GPT2Config& config;
  Conv1D c_fc{*this, "c_fc", config.n_inner, config.n_embd};
  Conv1D c_proj{*this, "c_proj", config.n_embd, config.n_inner};
  Dropout dropout{*this, "dropout", config.resid_pdrop};
};

struct GPT2Block : Module {
  GPT2Block(Module& parent, std::string_view name, const GPT2Config& c) : Module(parent, name), config(c) {}

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

  const GPT2Config& config;
  LayerNorm ln_1{*this, "ln_1", config.n_embd};
  GPT2Attention attn{*this, "attn", config};
  LayerNorm ln_2{*this, "ln_2", config.n_embd};
  GPT2MLP mlp{*this, "mlp", config};
};

struct GPT2Model : Module {
  GPT2Model(Module& parent, std::string_view name, const GPT2Config& c) : Module(parent, name), config(c) {}

  Module& add_blocks() {
    for (int64_t i = 0; i < config.n_layer; ++i) h.add(config);
    return *this;
  }

  Tensor operator()(const Tensor& input_ids) {
    Forward here(*this);
    require_positions("gpt2", positions_in(build(), input_ids.size(1)), "n_positions", config.n_positions);
    const Tensor embeds = wte(input_ids);  // (B, T, C)
    const Tensor positions = position_ids(build(), embeds.size(1));
    const Tensor position_embeds = wpe(positions);  // (1, T, C)
    Tensor hidden = add(embeds, position_embeds);
    const Tensor mask = create_causal_mask(build(), {embeds.size(0), embeds.size(1), embeds.size(1), embeds.dtype(), positions, {}});
    hidden = drop(hidden);
    for (GPT2Block& block : h) {
      auto run = [&block, mask, positions](const Tensor& x) { return block(x, mask); };
      hidden = run_block(block, run, hidden);
    }
    hidden = ln_f(hidden);
    return hidden;
  }

  const Tensor& embedding() const { return wte.weight; }

  const GPT2Config& config;
  Embedding wte{*this, "wte", config.vocab_size, config.n_embd};
  Embedding wpe{*this, "wpe", config.n_positions, config.n_embd};
  Dropout drop{*this, "drop", config.embd_pdrop};
  ModuleList<GPT2Block> h{*this, "h"};
  LayerNorm ln_f{add_blocks(), "ln_f", config.n_embd};
};

std::unique_ptr<Model> make_gpt2(Build& build, const Config& c) {
  const GPT2Config config(c);
  const HeadSettings head{
      .body = "transformer", .width = config.n_embd, .vocab_size = config.vocab_size, .tied = config.tied, .upcast_before_4_49 = false};
  return std::make_unique<CausalLM<GPT2Config, GPT2Model>>(build, config, head);
}

std::unique_ptr<Model> make_gpt2_classifier(Build& build, const Config& c) {
  const GPT2Config config(c);
  return std::make_unique<LastTokenClassifier<GPT2Config, GPT2Model>>(build, c, config, "transformer", config.n_embd, std::nullopt);
}

}  // namespace

const Family& gpt2_family() {
  static const Family kFamily{
      .name = "gpt2",
      .models = {{"gpt2", {"GPT2LMHeadModel"}, InputKind::lm, 1024, make_gpt2},
                 {"gpt2-classifier", {"GPT2ForSequenceClassification"}, InputKind::cls, 1024, make_gpt2_classifier}},
      .presets = {{"gpt2", R"({})", 1024},
                  {"gpt2-medium", R"({"n_embd":1024,"n_layer":24,"n_head":16})", 1024},
                  {"gpt2-large", R"({"n_embd":1280,"n_layer":36,"n_head":20})", 1024},
                  {"gpt2-xl", R"({"n_embd":1600,"n_layer":48,"n_head":25})", 1024},
                  {"distilgpt2", R"({"n_layer":6})", 1024}},
      .adapters = {.lora = {"c_attn"},
                   .ia3 = {"c_attn", "mlp.c_proj"},
                   .feedforward = {"mlp.c_proj"},
                   .ln_tuning = {"ln_1", "ln_2", "ln_f"}},
      .programs = {.megatron = MegatronDefaults{.tied = true,
                                                .bias = true,
                                                .qkv_bias = true,
                                                .layers = 12,
                                                .hidden = 768,
                                                .heads = 12,
                                                .ffn = 0,
                                                .vocab = 50257,
                                                .positions = 1024}},
  };
  return kFamily;
}

}  // namespace plimsoll
