// transformers.models.mpt: MptForCausalLM and MptForSequenceClassification. Attention is always eager, with a bias by distance.
#include <nlohmann/json.hpp>

#include <bit>

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

// emb_pdrop, resid_pdrop, expansion_ratio, learned_pos_emb and most of attn_config are read by the class and used nowhere.
struct MptConfig {
  explicit MptConfig(const Config& c)
      : d_model(c.size({"d_model", "hidden_size"}, 2048)),
        n_heads(c.size({"n_heads", "num_attention_heads"}, 16)),
        n_layers(c.size({"n_layers", "num_hidden_layers"}, 24)),
        max_seq_len(c.size({"max_seq_len"}, 2048)),
        vocab_size(c.size({"vocab_size"}, 50368)),
        tie_word_embeddings(c.flag({"tie_word_embeddings"}, true)) {
    reject_captured_outputs(c);
    c.require_divides("n_heads", n_heads, "d_model", d_model);
    const nlohmann::json* values = c.find({"attn_config"});
    const Config attn(c.source() + ": attn_config", values ? *values : nlohmann::json::object());
    attn_pdrop = attn.number({"attn_pdrop"}, 0.0);
    clip_qkv = attn.number({"clip_qkv"}, 0.0) != 0.0;
  }
  int64_t d_model, n_heads, n_layers, max_seq_len, vocab_size;
  bool tie_word_embeddings, clip_qkv = false;
  double attn_pdrop = 0.0;
};

struct MptAttention : Module {
  MptAttention(Module& parent, std::string_view name, const MptConfig& c) : Module(parent, name), config(c) {}

  Tensor operator()(const Tensor& x, const Tensor& bias, const Tensor& mask, Tensor* weights) const {
    Forward here(*this);
    Tensor mixed_qkv = Wqkv(x);  // (B, T, 3 C)
    if (config.clip_qkv) mixed_qkv = clamp(mixed_qkv);
    const Dims heads{x.size(0), x.size(1), config.n_heads, config.d_model / config.n_heads};
    Tensor q, k, v;  // (B, H, T, D)
    {
      const Tensors parts = chunk(mixed_qkv, 3, 2);
      q = parts[0];
      k = parts[1];
      v = parts[2];
    }
    q = transpose(reshape(q, heads), 1, 2);
    k = transpose(reshape(k, heads), 1, 2);
    v = transpose(reshape(v, heads), 1, 2);
    update_cache(build(), k, v);
    Tensor scores = mul_scalar(matmul(q, transpose(k, -1, -2)));  // (B, H, T, T)
    scores = add(scores, slice(bias, 2, bias.size(2) - k.size(-2), bias.size(2)));
    scores = masked_fill(scores, mask);
    Tensor probs;
    {
      const Tensor wide = softmax(to(scores, DType::float32));
      probs = to(wide, v.dtype());
    }
    probs = dropout(probs, config.attn_pdrop);
    *weights = probs;
    Tensor context = matmul(probs, v);  // (B, H, T, D)
    context = view(contiguous(permute(context, {0, 2, 1, 3})), x.sizes());
    return out_proj(context);  // (B, T, C)
  }

  const MptConfig& config;
  Linear Wqkv{*this, "Wqkv", config.d_model, 3 * config.d_model, false};
  Linear out_proj{*this, "out_proj", config.d_model, config.d_model, false};
};

struct MptMLP : Module {
  MptMLP(Module& parent, std::string_view name, const MptConfig& c) : Module(parent, name), config(c) {}

  Tensor operator()(const Tensor& x, const Tensor& residual) const {
    Forward here(*this);
    const Tensor hidden = gelu(up_proj(x));                // (B, T, 4 C)
    const Tensor intermediate_output = down_proj(hidden);  // (B, T, C)
    Tensor output = dropout(intermediate_output, config.attn_pdrop);
    output = add(output, residual);
    return output;
  }

  const MptConfig& config;
  Linear up_proj{*this, "up_proj", config.d_model, 4 * config.d_model, false};
  Linear down_proj{*this, "down_proj", 4 * config.d_model, config.d_model, false};
};

struct MptBlock : Module {
  MptBlock(Module& parent, std::string_view name, const MptConfig& c) : Module(parent, name), config(c) {}

  // Returns the hidden states and the attention's weights.
  Tensors operator()(const Tensor& x, const Tensor& bias, const Tensor& mask) const {
    Forward here(*this);
    Tensor weights, residual = x;
    Tensor layernorm_output = norm_1(x);  // (B, T, C)
    const Tensor attn_outputs = attn(layernorm_output, bias, mask, &weights);
    const Tensor hidden = add(resid_attn_dropout(attn_outputs), residual);
    layernorm_output = norm_2(hidden);
    residual = hidden;
    return {ffn(layernorm_output, residual), weights};
  }

  const MptConfig& config;
  LayerNorm norm_1{*this, "norm_1", config.d_model, true, false};
  MptAttention attn{*this, "attn", config};
  LayerNorm norm_2{*this, "norm_2", config.d_model, true, false};
  MptMLP ffn{*this, "ffn", config};
  Dropout resid_attn_dropout{*this, "resid_attn_dropout", config.attn_pdrop};
};

struct MptModel : Module {
  MptModel(Module& parent, std::string_view name, const MptConfig& c) : Module(parent, name), config(c) {}

  Module& add_blocks() {
    for (int64_t i = 0; i < config.n_layers; ++i) blocks.add(config);
    return *this;
  }

  // build_mpt_alibi_tensor: (H, 1, S)
  Tensor build_alibi() const {
    const int64_t s = config.max_seq_len, n = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(config.n_heads)));
    Tensor alibi = view(arange(tape(), s, DType::int32), {1, 1, 1, s});
    Tensor base;
    {
      const Tensor whole = arange(tape(), n);
      base = nondiff("_to_copy", whole, DType::float32);
    }
    base = nondiff("mul", base, DType::float32);
    Tensor slopes;
    {
      Tensor power = nondiff("pow", base, DType::float32);
      const Tensor inverse = nondiff("reciprocal", power, DType::float32);
      power.reset();
      slopes = view(nondiff("mul", inverse, DType::float32), {1, n, 1, 1});
    }
    if (n != config.n_heads) {
      const Tensor joined = cat({slice(slopes, 1, 1, n, 2), slice(slopes, 1, 0, n, 2)}, 1);
      slopes = slice(joined, 1, 0, config.n_heads);
    }
    alibi = mul(alibi, slopes);  // (1, H, 1, S)
    return squeeze(alibi, 0);
  }

  Tensor operator()(const Tensor& input_ids) {
    Forward here(*this);
    require_positions("mpt", input_ids.size(1), "max_seq_len", config.max_seq_len);
    const Tensor embeds = wte(input_ids);  // (B, T, C)
    Tensor hidden = embeds;
    const Tensor alibi = build_alibi();
    MaskArgs args{embeds.size(0), embeds.size(1), embeds.size(1), embeds.dtype(), {}, {}};
    args.only_eager = true;
    const Tensor mask = nondiff("_to_copy", create_causal_mask(build(), args), DType::bool_);  // (B, 1, T, T)
    Tensors outputs;
    auto run = [alibi, mask](const MptBlock& block, const Tensor& x) { return block(x, alibi, mask); };
    hidden = run_blocks(blocks, std::move(hidden), outputs, run);
    hidden = norm_f(hidden);
    return hidden;
  }

  const Tensor& embedding() const { return wte.weight; }

  const MptConfig& config;
  Embedding wte{*this, "wte", config.vocab_size, config.d_model};
  ModuleList<MptBlock> blocks{*this, "blocks"};
  LayerNorm norm_f{add_blocks(), "norm_f", config.d_model, true, false};
};

struct MptForCausalLM : CausalLM<MptConfig, MptModel> {
  using CausalLM::CausalLM;
  bool uses_cache() const override { return false; }
};

struct MptForSequenceClassification : LastTokenClassifier<MptConfig, MptModel> {
  using LastTokenClassifier::LastTokenClassifier;
  bool uses_cache() const override { return false; }
};

std::unique_ptr<Model> make_mpt(Build& build, const Config& c) {
  const MptConfig config(c);
  const HeadSettings head{
      .body = "transformer", .width = config.d_model, .vocab_size = config.vocab_size, .tied = config.tie_word_embeddings};
  return std::make_unique<MptForCausalLM>(build, config, head);
}

std::unique_ptr<Model> make_mpt_classifier(Build& build, const Config& c) {
  const MptConfig config(c);
  return std::make_unique<MptForSequenceClassification>(build, c, config, "transformer", config.d_model, std::nullopt);
}

}  // namespace

const Family& mpt_family() {
  static const Family kFamily{
      .name = "mpt",
      .models = {{"mpt", {"MptForCausalLM"}, InputKind::lm, 2048, make_mpt},
                 {"mpt-classifier", {"MptForSequenceClassification"}, InputKind::cls, 2048, make_mpt_classifier}},
      .presets = {{"mpt-7b", R"({"d_model":4096,"n_heads":32,"n_layers":32,"vocab_size":50432})", 2048},
                  {"mpt-30b", R"({"d_model":7168,"n_heads":64,"n_layers":48,"max_seq_len":8192,"vocab_size":50432})", 8192}},
  };
  return kFamily;
}

}  // namespace plimsoll
