// transformers.models.gpt_neox: GPTNeoXForCausalLM and GPTNeoXForSequenceClassification (Pythia, GPT-NeoX).
#include "model/family.h"
#include "nn/decoder_stack.h"
#include "nn/feed_forward.h"
#include "nn/last_token_classifier.h"
#include "nn/transformer.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

struct GPTNeoXConfig : DecoderConfig {
  explicit GPTNeoXConfig(const Config& c)
      : hidden_dropout(c.number({"hidden_dropout"}, 0.0)), use_parallel_residual(c.flag({"use_parallel_residual"}, true)) {
    names = {.embed = "embed_in", .norm = "final_layer_norm"};
    vocab_size = c.size({"vocab_size"}, 50432);
    hidden_size = c.size({"hidden_size"}, 6144);
    num_hidden_layers = c.size({"num_hidden_layers"}, 44);
    num_attention_heads = c.size({"num_attention_heads"}, 64);
    intermediate_size = c.size({"intermediate_size"}, 24576);
    hidden_act = c.text({"hidden_act"}, "gelu");
    attention_dropout = c.number({"attention_dropout"}, 0.0);
    qkv_bias = o_bias = c.flag({"attention_bias"}, true);
    tie_word_embeddings = c.flag({"tie_word_embeddings"}, false);
    c.require_divides("num_attention_heads", num_attention_heads, "hidden_size", hidden_size);
    head_dim = hidden_size / num_attention_heads;
    rope = rope_settings(c, {head_dim, 2048, 0.25, "rotary_pct"});
    norm = norm_of<LayerNorm>;
  }
  double hidden_dropout;
  bool use_parallel_residual;
};

struct GPTNeoXAttention : Module {
  GPTNeoXAttention(Module& parent, std::string_view name, const GPTNeoXConfig& c) : Module(parent, name), config(c) {
    const int64_t positions = c.rope.max_position_embeddings;
    if (build().legacy()) buffer("bias", {1, 1, positions, positions}, DType::bool_);  // the causal mask
  }

  Tensor operator()(const Tensor& x, const CosSin& tables, const Tensor& mask, Tensor* weights) const {
    Forward here(*this);
    const Tensor qkv = transpose(view(query_key_value(x), {x.size(0), x.size(1), -1, 3 * config.head_dim}), 1, 2);  // (B, H, T, 3 D)
    Tensor q, k, v;                                                                                                 // (B, H, T, D)
    {
      const Tensors parts = chunk(qkv, 3, -1);
      q = parts[0];
      k = parts[1];
      v = parts[2];
    }
    {
      Rotated rotated = rotate_parts(q, k, unsqueeze(tables.cos, 1), unsqueeze(tables.sin, 1), rotate);
      q = std::move(rotated.q);
      k = std::move(rotated.k);
    }
    AttentionCall call;
    if (build().legacy()) {  // tables in fp32 made q and k fp32; so they were cached, and eager attention went on with them
      q = to(q, DType::float32);
      k = to(k, DType::float32);
      call.caches = false;
      call.cast_to_values = true;
      if (build().cache) build().cache->insert(build().cache->end(), {k, v});
      if (!build().eager()) {
        q = to(q, v.dtype());
        k = to(k, v.dtype());
      }
    }
    call.mask = mask;
    call.dropout = config.attention_dropout;
    call.has_kv_groups = false;
    Tensor out = attention(build(), q, k, v, call, weights);     // (B, T, H, D)
    out = contiguous(reshape(out, {x.size(0), x.size(1), -1}));  // (B, T, C)
    out = dense(out);
    return out;
  }

  const GPTNeoXConfig& config;
  Linear query_key_value{*this, "query_key_value", config.hidden_size, 3 * config.hidden_size, config.qkv_bias};
  Linear dense{*this, "dense", config.hidden_size, config.hidden_size, config.o_bias};
};

struct GPTNeoXLayer : Module {
  GPTNeoXLayer(Module& parent, std::string_view name, const GPTNeoXConfig& c) : Module(parent, name), config(c) {}

  Tensor operator()(const Tensor& x, const CosSin& tables, const Tensor& mask) const {
    Forward here(*this);
    Tensor weights;
    Tensor attn_output = run_attention(attention, input_layernorm(x), &weights, tables, mask);  // (B, T, C)
    attn_output = post_attention_dropout(attn_output);
    if (config.use_parallel_residual) {
      Tensor mlp_output = run_part(mlp, post_attention_layernorm(x));  // (B, T, C)
      mlp_output = post_mlp_dropout(mlp_output);
      return add(add(mlp_output, attn_output), x);
    }
    attn_output = add(attn_output, x);
    Tensor mlp_output = run_part(mlp, post_attention_layernorm(attn_output));  // (B, T, C)
    mlp_output = post_mlp_dropout(mlp_output);
    return add(mlp_output, attn_output);
  }

  const GPTNeoXConfig& config;
  LayerNorm input_layernorm{*this, "input_layernorm", config.hidden_size};
  LayerNorm post_attention_layernorm{*this, "post_attention_layernorm", config.hidden_size};
  Dropout post_attention_dropout{*this, "post_attention_dropout", config.hidden_dropout};
  Dropout post_mlp_dropout{*this, "post_mlp_dropout", config.hidden_dropout};
  GPTNeoXAttention attention{*this, "attention", config};
  FeedForward mlp{*this, "mlp", {"dense_h_to_4h", "dense_4h_to_h", config.hidden_size, config.intermediate_size, config.hidden_act}};
};

struct GPTNeoXModel : DecoderStack<GPTNeoXConfig, GPTNeoXLayer> {
  GPTNeoXModel(Module& parent, std::string_view name, const GPTNeoXConfig& c)
      : DecoderStack(parent, name, c), emb_dropout(*this, "emb_dropout", c.hidden_dropout) {}
  Tensor enter(Tensor& embeds) const override { return emb_dropout(embeds); }
  Dropout emb_dropout;
};

std::unique_ptr<Model> make_gpt_neox(Build& build, const Config& c) {
  const GPTNeoXConfig config(c);
  HeadSettings head = lm_head(config);
  head.body = "gpt_neox";
  head.head = "embed_out";
  head.upcast_before_4_49 = false;
  return std::make_unique<CausalLM<GPTNeoXConfig, GPTNeoXModel>>(build, config, head);
}

std::unique_ptr<Model> make_gpt_neox_classifier(Build& build, const Config& c) {
  const GPTNeoXConfig config(c);
  return std::make_unique<LastTokenClassifier<GPTNeoXConfig, GPTNeoXModel>>(build, c, config, "gpt_neox", config.hidden_size, std::nullopt);
}

}  // namespace

const Family& gpt_neox_family() {
  static const Family kFamily{
      .name = "gpt_neox",
      .models = {{"gpt_neox", {"GPTNeoXForCausalLM"}, InputKind::lm, 2048, make_gpt_neox},
                 {"gpt_neox-classifier", {"GPTNeoXForSequenceClassification"}, InputKind::cls, 2048, make_gpt_neox_classifier}},
      .presets =
          {{"pythia-70m",
            R"({"hidden_size":512,"intermediate_size":2048,"num_hidden_layers":6,"num_attention_heads":8,"vocab_size":50304})", 2048},
           {"pythia-160m",
            R"({"hidden_size":768,"intermediate_size":3072,"num_hidden_layers":12,"num_attention_heads":12,"vocab_size":50304})", 2048},
           {"pythia-410m",
            R"({"hidden_size":1024,"intermediate_size":4096,"num_hidden_layers":24,"num_attention_heads":16,"vocab_size":50304})", 2048},
           {"pythia-1b",
            R"({"hidden_size":2048,"intermediate_size":8192,"num_hidden_layers":16,"num_attention_heads":8,"vocab_size":50304})", 2048},
           {"pythia-1.4b",
            R"({"hidden_size":2048,"intermediate_size":8192,"num_hidden_layers":24,"num_attention_heads":16,"vocab_size":50304})", 2048},
           {"pythia-2.8b",
            R"({"hidden_size":2560,"intermediate_size":10240,"num_hidden_layers":32,"num_attention_heads":32,"vocab_size":50304})", 2048},
           {"pythia-6.9b",
            R"({"hidden_size":4096,"intermediate_size":16384,"num_hidden_layers":32,"num_attention_heads":32,"vocab_size":50432})", 2048},
           {"pythia-12b",
            R"({"hidden_size":5120,"intermediate_size":20480,"num_hidden_layers":36,"num_attention_heads":40,"vocab_size":50688})", 2048},
           {"gpt-neox-20b",
            R"({"hidden_size":6144,"intermediate_size":24576,"num_hidden_layers":44,"num_attention_heads":64,"vocab_size":50432})", 2048}},
      .adapters = {.lora = {"query_key_value"}, .ia3 = {"query_key_value", "dense_4h_to_h"}, .feedforward = {"dense_4h_to_h"}},
  };
  return kFamily;
}

}  // namespace plimsoll
