// litgpt.model and litgpt.lora: GPT, the one class behind all of litgpt's checkpoints, with litgpt's fine-tuning loop around it (the
// head and the loss in chunks of tokens, results in fp32 as Lightning Fabric returns them). Keys are those of litgpt.Config and of
// model_config.yaml, and `litgpt_version`; experts, latent attention and norms of queries are not simulated.
#include "model/decoder/litgpt_lora.h"
#include "model/family.h"
#include "nn/model.h"
#include "ops/attention.h"
#include "ops/embedding.h"
#include "ops/loss.h"
#include "ops/loss_by_element.h"
#include "ops/matmul.h"
#include "ops/norm.h"
#include "ops/pointwise.h"
#include "ops/reduce.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

// Where the code changed (git log of litgpt).
constexpr int kFp32Norm = 200;         // RMSNorm computes in fp32; lit-gpt before November 2023 did not
constexpr int kStableEmbedding = 500;  // QLoRA replaces the embedding by bitsandbytes' StableEmbedding
constexpr int kSplitQkv = 505;         // queries, keys and values lie one after another, no longer group by group

struct LitgptConfig {
  explicit LitgptConfig(const Config& c)
      : release(litgpt_release(c.text({"litgpt_version"}, "0.5.13"))),
        block_size(c.size({"block_size"}, 4096)),
        vocab_size(c.size({"padded_vocab_size", "vocab_size"}, 50304)),
        n_layer(c.size({"n_layer"}, 16)),
        n_head(c.size({"n_head"}, 32)),
        n_embd(c.size({"n_embd"}, 4096)),
        n_query_groups(c.size({"n_query_groups"}, n_head)),
        intermediate_size(c.size({"intermediate_size"}, 4 * n_embd)),
        rotary_percentage(c.number({"rotary_percentage"}, 0.25)),
        parallel_residual(c.flag({"parallel_residual"}, true)),
        shared_attention_norm(c.flag({"shared_attention_norm"}, false)),
        post_attention_norm(c.flag({"post_attention_norm"}, false)),
        post_mlp_norm(c.flag({"post_mlp_norm"}, false)),
        bias(c.flag({"bias"}, true)),
        attn_bias(c.flag({"attn_bias"}, false)),
        lm_head_bias(c.flag({"lm_head_bias"}, false)),
        scale_embeddings(c.flag({"scale_embeddings"}, false)),
        caps_scores(c.find({"attention_logit_softcapping"}) != nullptr),
        caps_logits(c.find({"final_logit_softcapping"}) != nullptr),
        sliding_window_size(c.find({"sliding_window_size"}) ? c.size({"sliding_window_size"}, 1) : 0),
        sliding_window_layer_placing(c.size({"sliding_window_layer_placing"}, 2)),
        lm_head_chunk_size(c.size({"lm_head_chunk_size"}, 128)),
        norm_class_name(c.text({"norm_class_name"}, "LayerNorm")),
        mlp_class_name(c.text({"mlp_class_name"}, "GptNeoxMLP")) {
    c.require_divides("n_query_groups", n_query_groups, "n_head", n_head);
    if (!c.find({"head_size"})) c.require_divides("n_head", n_head, "n_embd", n_embd);
    head_size = c.size({"head_size"}, n_embd / n_head);
    rope_n_elem = static_cast<int64_t>(rotary_percentage * static_cast<double>(head_size));
    if (!(rotary_percentage >= 0 && rotary_percentage <= 1) || rope_n_elem % 2 != 0)
      throw Error("[" + c.source() + "] rotary_percentage turns " + std::to_string(rope_n_elem) + " of " + std::to_string(head_size) +
                      " dims of a head",
                  "give a part of 1 that makes an even number");
    if (c.integer({"n_expert"}, 0) > 0 || c.flag({"norm_qk"}, false) || c.find({"latent_attention"}))
      throw Error("[" + c.source() + "] litgpt's experts, latent attention and norms of queries and keys are not simulated",
                  "leave n_expert, norm_qk and latent_attention out");
    if (norm_class_name != "LayerNorm" && norm_class_name != "RMSNorm")
      throw Error("[" + c.source() + "] norm_class_name '" + norm_class_name + "' is not known", "known: LayerNorm, RMSNorm");
    if (mlp_class_name != "GptNeoxMLP" && mlp_class_name != "LLaMAMLP" && mlp_class_name != "GemmaMLP")
      throw Error("[" + c.source() + "] mlp_class_name '" + mlp_class_name + "' is not simulated", "known: GptNeoxMLP, LLaMAMLP, GemmaMLP");
  }

  int release;
  int64_t block_size, vocab_size, n_layer, n_head, n_embd, n_query_groups, intermediate_size, head_size = 0, rope_n_elem = 0;
  double rotary_percentage;
  bool parallel_residual, shared_attention_norm, post_attention_norm, post_mlp_norm, bias, attn_bias, lm_head_bias, scale_embeddings,
      caps_scores, caps_logits;
  int64_t sliding_window_size, sliding_window_layer_placing, lm_head_chunk_size;
  std::string norm_class_name, mlp_class_name;

  bool slides(int64_t layer) const { return sliding_window_size > 0 && layer % sliding_window_layer_placing == 0; }
};

struct LitgptNorm : Module {
  LitgptNorm(Module& parent, std::string_view name, const LitgptConfig& c)
      : Module(parent, name),
        is_rms(c.norm_class_name == "RMSNorm"),
        in_fp32(c.release >= kFp32Norm),
        weight(parameter("weight", {c.n_embd})) {
    if (!is_rms) bias = parameter("bias", {c.n_embd});
  }

  Tensor operator()(const Tensor& input) const {
    Forward here(*this);
    if (!is_rms) return layer_norm(input, 1, weight, bias);
    const Tensor x = in_fp32 ? to(input, DType::float32) : input;
    const Tensor norm_x = mean(mul(x, x), {-1}, true);
    Tensor x_normed;
    {
      const Tensor scale = rsqrt(add_scalar(norm_x));
      x_normed = mul(x, scale);
    }
    if (!in_fp32) return mul(weight, x_normed);
    const Tensor scaled = mul(x_normed, to(weight, DType::float32));
    return to(scaled, input.dtype());
  }

  bool is_rms, in_fp32;
  Tensor weight, bias;
};

struct LitgptRope {
  Tensor cos, sin;  // (T, rope_n_elem), fp32
};

// apply_rope: tables in fp32 make the products so; the sum goes back to the type of x.
Tensor litgpt_rope(const Tensor& x, const LitgptRope& rope) {
  const int64_t half = x.size(-1) / 2;
  const Tensor x1 = slice(x, -1, 0, half), x2 = slice(x, -1, half, x.size(-1));
  Tensor rotated;
  {
    const Tensor negative = neg(x2);
    rotated = cat({negative, x1}, -1);  // (B, H, T, n)
  }
  Tensor roped;
  {
    const Tensor a = mul(x, rope.cos), b = mul(rotated, rope.sin);
    roped = add(a, b);
  }
  return to(roped, x.dtype());
}

struct LitgptHeads {
  Tensor q, k, v;  // (B, H, T, hs)
};

struct LitgptAttention : Module {
  LitgptAttention(Module& parent, std::string_view name, const LitgptConfig& c, int64_t layer)
      : Module(parent, name), config(c), slides(c.slides(layer)) {}

  // Group by group: so many queries, a key and a value, repeated where a group has several queries.
  LitgptHeads interleaved(const Tensor& fused) const {
    const int64_t b = fused.size(0), t = fused.size(1), groups = config.n_query_groups, per_group = config.n_head / groups;
    const Tensor parts = permute(view(fused, {b, t, groups, per_group + 2, config.head_size}), {0, 2, 3, 1, 4});
    const Tensors split_parts = split(parts, {per_group, 1, 1}, 2);
    Tensor k = split_parts[1], v = split_parts[2];
    const bool expands = config.release < kFp32Norm ? groups != 1 : groups != config.n_head;
    if (expands) {
      const Dims repeated{b, groups, per_group, t, config.head_size};
      k = expand(k, repeated);
      v = expand(v, repeated);
    }
    const Dims heads{b, -1, t, config.head_size};
    return {reshape(split_parts[0], heads), reshape(k, heads), reshape(v, heads)};
  }

  LitgptHeads one_after_another(const Tensor& fused) const {
    const int64_t b = fused.size(0), t = fused.size(1), kv = config.n_query_groups * config.head_size;
    const Tensors parts = split(fused, {config.n_head * config.head_size, kv, kv}, -1);
    const auto heads = [&](const Tensor& x) { return transpose(view(x, {b, t, -1, config.head_size}), 1, 2); };
    return {heads(parts[0]), heads(parts[1]), heads(parts[2])};
  }

  Tensor rotated(const Tensor& x, const LitgptRope& rope) const {
    const Tensor roped = litgpt_rope(slice(x, -1, 0, config.rope_n_elem), rope);
    return cat({roped, slice(x, -1, config.rope_n_elem, config.head_size)}, -1);
  }

  // ones.triu() filled with the lowest number where it is set
  Tensor causal_mask(int64_t t, DType dtype) const {
    Tensor mask = filled(tape(), "ones", {t, t}, dtype);
    mask = nondiff("triu", mask, dtype);
    nondiff("_to_copy", mask, DType::bool_);
    return mask;
  }

  Tensor capped_attention(const LitgptHeads& h, Tensor mask) const {
    Tensor scores = mul_scalar(matmul(h.q, transpose(h.k, -2, -1)));  // (B, H, T, T)
    {
      const Tensor capped = tanh(div_scalar(scores));
      scores = mul_scalar(capped);
    }
    if (!mask) mask = causal_mask(h.q.size(2), h.q.dtype());
    scores = add(scores, mask);
    scores = to(softmax(scores, DType::float32), h.q.dtype());
    return matmul(scores, h.v);  // (B, H, T, hs)
  }

  Tensor operator()(const Tensor& x, const LitgptRope& rope) const {
    Forward here(*this);
    const int64_t b = x.size(0), t = x.size(1);
    const Tensor fused = qkv(x);  // (B, T, (H + 2 G) hs)
    LitgptHeads h = config.release < kSplitQkv ? interleaved(fused) : one_after_another(fused);
    {
      const Tensor q = rotated(h.q, rope);
      h.k = rotated(h.k, rope);
      h.q = q;
    }
    if (config.release >= kSplitQkv && config.n_query_groups != config.n_head) {
      h.k = repeat_interleave(h.k, config.n_head / config.n_query_groups, 1);
      h.v = repeat_interleave(h.v, config.n_head / config.n_query_groups, 1);
    }
    Tensor mask;
    if (slides) {
      mask = causal_mask(t, x.dtype());
      mask = nondiff("add_", mask, mask.dtype());  // with that of the window
    }
    AttentionArgs args;
    args.mask = mask;
    args.causal = !mask;
    Tensor y = config.caps_scores ? capped_attention(h, mask) : scaled_dot_product_attention(h.q, h.k, h.v, args);
    y = reshape(transpose(y, 1, 2), {b, t, config.n_head * config.head_size});
    return proj(y);  // (B, T, C)
  }

  const LitgptConfig& config;
  bool slides;
  LitgptQkv qkv{*this,
                config.release < kSplitQkv ? "attn" : "qkv",
                {config.n_embd, config.head_size, config.n_head, config.n_query_groups, config.bias || config.attn_bias, config.release}};
  LitgptLinear proj{*this, "proj", (config.n_head * config.head_size), config.n_embd, config.bias};
};

struct LitgptMlp : Module {
  LitgptMlp(Module& parent, std::string_view name, const LitgptConfig& c)
      : Module(parent, name),
        config(c),
        gated(c.mlp_class_name != "GptNeoxMLP"),
        act(c.mlp_class_name == "LLaMAMLP" ? silu : gelu),
        fc_2(gated ? std::make_unique<LitgptLinear>(*this, "fc_2", c.n_embd, c.intermediate_size, c.bias) : nullptr) {}

  Tensor operator()(const Tensor& input) const {
    Forward here(*this);
    if (!gated) {
      Tensor x = fc_1(input);  // (B, T, F)
      x = act(x);
      return proj(x);
    }
    const Tensor x_fc_1 = fc_1(input), x_fc_2 = (*fc_2)(input);  // (B, T, F)
    Tensor x;
    {
      const Tensor gate = act(x_fc_1);
      x = mul(gate, x_fc_2);
    }
    return proj(x);  // (B, T, C)
  }

  const LitgptConfig& config;
  bool gated;
  Tensor (*act)(const Tensor&);
  LitgptLinear fc_1{*this, gated ? "fc_1" : "fc", config.n_embd, config.intermediate_size, config.bias};
  std::unique_ptr<LitgptLinear> fc_2;
  LitgptLinear proj{*this, "proj", config.intermediate_size, config.n_embd, config.bias};
};

struct LitgptBlock : Module {
  LitgptBlock(Module& parent, std::string_view name, const LitgptConfig& c, int64_t layer)
      : Module(parent, name), config(c), attn(*this, "attn", c, layer) {
    if (c.post_attention_norm) post_attention_norm = std::make_unique<LitgptNorm>(*this, "post_attention_norm", c);
    if (!c.shared_attention_norm) norm_2 = std::make_unique<LitgptNorm>(*this, "norm_2", c);
    mlp = std::make_unique<LitgptMlp>(*this, "mlp", c);
    if (c.post_mlp_norm) post_mlp_norm = std::make_unique<LitgptNorm>(*this, "post_mlp_norm", c);
  }

  Tensor fed(const Tensor& x_normed) const {
    Tensor x = run_part(*mlp, x_normed);
    return post_mlp_norm ? (*post_mlp_norm)(x) : x;
  }

  Tensor operator()(const Tensor& input, const LitgptRope& rope) const {
    Forward here(*this);
    Tensor x_normed = norm_1(input);  // (B, T, C)
    Tensor attention_output = attn(x_normed, rope);
    if (post_attention_norm) attention_output = (*post_attention_norm)(attention_output);
    if (config.parallel_residual) {
      if (norm_2) x_normed = (*norm_2)(input);
      if (config.release >= kSplitQkv) {
        const Tensor x = add(attention_output, input);
        return add(fed(x_normed), x);
      }
      if (config.release < kFp32Norm) {
        const Tensor x = add(input, attention_output);
        return add(x, run_part(*mlp, x_normed));
      }
      const Tensor x = add(run_part(*mlp, x_normed), attention_output);
      return add(x, input);
    }
    const Tensor x = add(attention_output, input);
    if (config.release >= kSplitQkv) {
      x_normed = (*norm_2)(x);
      return add(fed(x_normed), x);
    }
    return add(fed((*norm_2)(x)), x);
  }

  const LitgptConfig& config;
  LitgptNorm norm_1{*this, "norm_1", config};
  LitgptAttention attn;
  std::unique_ptr<LitgptNorm> post_attention_norm, norm_2, post_mlp_norm;
  std::unique_ptr<LitgptMlp> mlp;
};

// The embedding, under QLoRA since 0.5 bitsandbytes' StableEmbedding (0.49, nn/modules.py): a norm over the rows. litgpt makes it after the
// others were frozen, so that table and norm have gradients (litgpt/finetune/lora.py).
struct LitgptEmbedding : Module {
  LitgptEmbedding(Module& parent, std::string_view name, const LitgptConfig& c)
      : Module(parent, name), stable(c.release >= kStableEmbedding && build().tuning.quantization_of("lm_head.linear")) {
    const Dims table{c.vocab_size, c.n_embd};
    weight = stable ? parameter("weight", table, build().dtype, true) : parameter("weight", table);
    if (!stable) return;
    norm_weight = parameter("norm.weight", {c.n_embd}, build().dtype, true);
    norm_bias = parameter("norm.bias", {c.n_embd}, build().dtype, true);
  }

  Tensor operator()(const Tensor& ids) const {
    Forward here(*this);
    const Tensor rows = embedding(weight, ids);
    return stable ? layer_norm(rows, 1, norm_weight, norm_bias) : rows;
  }

  bool stable;
  Tensor weight, norm_weight, norm_bias;
};

struct LitgptGPT : Model {
  LitgptGPT(Build& build, const LitgptConfig& c)
      : Model(build),
        config(c),
        wte(transformer, "wte", c),
        h(transformer, "h"),
        cos(buffer("cos", {c.block_size, c.rope_n_elem})),
        sin(buffer("sin", {c.block_size, c.rope_n_elem})) {}

  Module& add_blocks() {
    for (int64_t i = 0; i < config.n_layer; ++i) h.add(config, i);
    return transformer;
  }

  Tensor body(const Tensor& idx) {
    const int64_t t = idx.size(1);
    if (t > config.block_size)
      throw Error("[litgpt] samples of " + std::to_string(t) + " tokens, but block_size is " + std::to_string(config.block_size),
                  "give shorter samples");
    const LitgptRope rope{slice(cos, 0, 0, t), slice(sin, 0, 0, t)};
    Tensor x = wte(idx);  // (B, T, C)
    if (config.scale_embeddings) x = mul_scalar(x);
    for (LitgptBlock& block : h) {
      auto run = [&block, rope](const Tensor& hidden) { return block(hidden, rope); };
      x = run_block(block, run, x);
    }
    return ln_f(x);
  }

  // Fabric returns half results in fp32, when all of them are there (lightning.fabric.wrappers._FabricModule.forward).
  Tensors chunks_of_logits(const Tensor& idx) {
    const Tensor x = body(idx);
    Tensors chunks, wide;
    for (const Tensor& x_i : split(x, config.lm_head_chunk_size, 1)) {
      Tensor logits = lm_head(x_i);  // (B, 128, V)
      if (config.caps_logits && config.release >= kStableEmbedding) {
        const Tensor capped = tanh(div_scalar(logits));
        logits = mul_scalar(capped);
      }
      chunks.push_back(logits);
    }
    for (const Tensor& logits : chunks) wide.push_back(to(logits, DType::float32));
    return wide;
  }

  // chunked_cross_entropy over a list of chunks, of which the last is one token shorter.
  Tensor loss_of(const Tensors& logits, const Tensor& labels) const {
    const Tensor targets = slice(labels, -1, 1, labels.size(-1));
    Tensors logit_chunks, target_chunks, loss_chunks;
    for (const Tensor& chunk : logits) logit_chunks.push_back(reshape(chunk, {-1, chunk.size(-1)}));
    for (const Tensor& chunk : split(targets, logits[0].size(1), 1)) target_chunks.push_back(reshape(chunk, {-1}));
    for (size_t i = 0; i < target_chunks.size(); ++i) loss_chunks.push_back(cross_entropy_by_element(logit_chunks[i], target_chunks[i]));
    const Tensor total = sum(cat(loss_chunks, 0));
    return div_scalar(total);
  }

  Output forward(const Batch& batch) override {
    if (!batch.labels) {
      const Tensor x = body(batch.input_ids);
      return {{}, {to(lm_head(x), DType::float32)}};
    }
    Tensors logits = chunks_of_logits(batch.input_ids);
    logits.back() = slice(logits.back(), 1, 0, logits.back().size(1) - 1);
    return {loss_of(logits, batch.labels), logits};
  }

  bool uses_cache() const override { return false; }

  LitgptConfig config;
  LitgptLinear lm_head{*this, "lm_head", config.n_embd, config.vocab_size, config.lm_head_bias};
  Module transformer{*this, "transformer"};
  LitgptEmbedding wte;
  ModuleList<LitgptBlock> h;
  LitgptNorm ln_f{add_blocks(), "ln_f", config};
  Tensor cos, sin;
};

std::unique_ptr<Model> make_litgpt(Build& build, const Config& c) {
  build.load_dtype = DType::float16;  // what Fabric quantises from (plugins/precision/bitsandbytes.py, _Linear4bit.quantize)
  return std::make_unique<LitgptGPT>(build, LitgptConfig(c));
}

}  // namespace

const Family& litgpt_family() {
  static const Family kFamily{
      .name = "litgpt",
      .library = "Lightning-AI/litgpt",
      .models = {{"litgpt", {}, InputKind::lm, 2048, make_litgpt}},
      .presets =
          {{"litgpt-llama-2-7b",
            R"({"n_layer":32,"n_embd":4096,"n_head":32,"intermediate_size":11008,"padded_vocab_size":32000,"rotary_percentage":1.0,"parallel_residual":false,"bias":false,"norm_class_name":"RMSNorm","mlp_class_name":"LLaMAMLP"})",
            2048},
           {"litgpt-llama-3-8b",
            R"({"n_layer":32,"n_embd":4096,"n_head":32,"n_query_groups":8,"intermediate_size":14336,"padded_vocab_size":128256,"block_size":8192,"rotary_percentage":1.0,"parallel_residual":false,"bias":false,"norm_class_name":"RMSNorm","mlp_class_name":"LLaMAMLP"})",
            2048},
           {"litgpt-llama-3.2-1b",
            R"({"n_layer":16,"n_embd":2048,"n_head":32,"n_query_groups":8,"intermediate_size":8192,"padded_vocab_size":128256,"block_size":131072,"rotary_percentage":1.0,"parallel_residual":false,"bias":false,"norm_class_name":"RMSNorm","mlp_class_name":"LLaMAMLP"})",
            2048},
           {"litgpt-phi-2",
            R"({"n_layer":32,"n_embd":2560,"n_head":32,"padded_vocab_size":51200,"block_size":2048,"rotary_percentage":0.4,"shared_attention_norm":true,"lm_head_bias":true})",
            2048},
           {"litgpt-falcon-7b",
            R"({"n_layer":32,"n_embd":4544,"n_head":71,"n_query_groups":1,"padded_vocab_size":65024,"block_size":2048,"rotary_percentage":1.0,"shared_attention_norm":true,"bias":false})",
            2048},
           {"litgpt-gemma-2b",
            R"({"n_layer":18,"n_embd":2048,"n_head":8,"n_query_groups":1,"intermediate_size":16384,"padded_vocab_size":256000,"rotary_percentage":1.0,"parallel_residual":false,"bias":false,"scale_embeddings":true,"norm_class_name":"RMSNorm","mlp_class_name":"GemmaMLP"})",
            2048},
           {"litgpt-gemma-7b",
            R"({"n_layer":28,"n_embd":3072,"n_head":16,"head_size":256,"intermediate_size":24576,"padded_vocab_size":256000,"rotary_percentage":1.0,"parallel_residual":false,"bias":false,"scale_embeddings":true,"norm_class_name":"RMSNorm","mlp_class_name":"GemmaMLP"})",
            2048},
           {"litgpt-gemma-2-2b",
            R"({"n_layer":26,"n_embd":2304,"n_head":8,"n_query_groups":4,"head_size":256,"padded_vocab_size":256000,"block_size":8192,"rotary_percentage":1.0,"parallel_residual":false,"post_attention_norm":true,"post_mlp_norm":true,"bias":false,"scale_embeddings":true,"attention_logit_softcapping":50.0,"final_logit_softcapping":30.0,"sliding_window_size":4096,"norm_class_name":"RMSNorm","mlp_class_name":"GemmaMLP"})",
            2048},
           {"litgpt-gemma-2-9b",
            R"({"n_layer":42,"n_embd":3584,"n_head":16,"n_query_groups":8,"head_size":256,"padded_vocab_size":256000,"block_size":8192,"rotary_percentage":1.0,"parallel_residual":false,"post_attention_norm":true,"post_mlp_norm":true,"bias":false,"scale_embeddings":true,"attention_logit_softcapping":50.0,"final_logit_softcapping":30.0,"sliding_window_size":4096,"norm_class_name":"RMSNorm","mlp_class_name":"GemmaMLP"})",
            2048},
           {"litgpt-llama-3.1-8b",
            R"({"n_layer":32,"n_embd":4096,"n_head":32,"n_query_groups":8,"intermediate_size":14336,"padded_vocab_size":128256,"block_size":131072,"rotary_percentage":1.0,"parallel_residual":false,"bias":false,"norm_class_name":"RMSNorm","mlp_class_name":"LLaMAMLP"})",
            2048},
           {"litgpt-llama-3.2-3b",
            R"({"n_layer":28,"n_embd":3072,"n_head":24,"n_query_groups":8,"intermediate_size":8192,"padded_vocab_size":128256,"block_size":131072,"rotary_percentage":1.0,"parallel_residual":false,"bias":false,"norm_class_name":"RMSNorm","mlp_class_name":"LLaMAMLP"})",
            2048},
           {"litgpt-mistral-7b-v0.1",
            R"({"n_layer":32,"n_query_groups":8,"intermediate_size":14336,"padded_vocab_size":32000,"rotary_percentage":1.0,"parallel_residual":false,"bias":false,"sliding_window_size":4096,"sliding_window_layer_placing":1,"norm_class_name":"RMSNorm","mlp_class_name":"LLaMAMLP"})",
            2048},
           {"litgpt-mistral-7b-v0.2",
            R"({"n_layer":32,"n_query_groups":8,"intermediate_size":14336,"padded_vocab_size":32000,"block_size":32768,"rotary_percentage":1.0,"parallel_residual":false,"bias":false,"norm_class_name":"RMSNorm","mlp_class_name":"LLaMAMLP"})",
            2048},
           {"litgpt-phi-3-mini-4k",
            R"({"n_layer":32,"n_embd":3072,"intermediate_size":8192,"padded_vocab_size":32064,"rotary_percentage":1.0,"parallel_residual":false,"bias":false,"sliding_window_size":2048,"sliding_window_layer_placing":1,"norm_class_name":"RMSNorm","mlp_class_name":"LLaMAMLP"})",
            2048},
           {"litgpt-stablelm-base-alpha-3b", R"({"padded_vocab_size":50688})", 2048},
           {"litgpt-tinyllama-1.1b",
            R"({"n_layer":22,"n_embd":2048,"n_query_groups":4,"intermediate_size":5632,"padded_vocab_size":32000,"block_size":2048,"rotary_percentage":1.0,"parallel_residual":false,"bias":false,"norm_class_name":"RMSNorm","mlp_class_name":"LLaMAMLP"})",
            2048}},
      .kbit_training = false,
  };
  return kFamily;
}

}  // namespace plimsoll
