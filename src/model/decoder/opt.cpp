// transformers.models.opt: OPTForCausalLM and OPTForSequenceClassification.
#include "model/family.h"
#include "nn/causal_lm.h"
#include "nn/last_token_classifier.h"
#include "nn/layers.h"
#include "nn/masking.h"
#include "nn/transformer.h"
#include "ops/pointwise.h"
#include "ops/reduce.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

struct OPTConfig {
  explicit OPTConfig(const Config& c)
      : vocab_size(c.size({"vocab_size"}, 50272)),
        hidden_size(c.size({"hidden_size"}, 768)),
        num_hidden_layers(c.size({"num_hidden_layers"}, 12)),
        ffn_dim(c.size({"ffn_dim"}, 3072)),
        max_position_embeddings(c.size({"max_position_embeddings"}, 2048)),
        num_attention_heads(c.size({"num_attention_heads"}, 12)),
        word_embed_proj_dim(c.size({"word_embed_proj_dim"}, hidden_size)),
        activation_function(c.text({"activation_function"}, "relu")),
        dropout(c.number({"dropout"}, 0.1)),
        attention_dropout(c.number({"attention_dropout"}, 0.0)),
        do_layer_norm_before(c.flag({"do_layer_norm_before"}, true)),
        remove_final_layer_norm(c.flag({"_remove_final_layer_norm"}, false)),
        enable_bias(c.flag({"enable_bias"}, true)),
        layer_norm_elementwise_affine(c.flag({"layer_norm_elementwise_affine"}, true)),
        tie_word_embeddings(c.flag({"tie_word_embeddings"}, true)) {
    c.require_divides("num_attention_heads", num_attention_heads, "hidden_size", hidden_size);
  }
  int64_t vocab_size, hidden_size, num_hidden_layers, ffn_dim, max_position_embeddings, num_attention_heads, word_embed_proj_dim;
  std::string activation_function;
  double dropout, attention_dropout;
  bool do_layer_norm_before, remove_final_layer_norm, enable_bias, layer_norm_elementwise_affine, tie_word_embeddings;
};

struct OPTAttention : Module {
  OPTAttention(Module& parent, std::string_view name, const OPTConfig& c) : Module(parent, name), config(c) {}

  Tensor operator()(const Tensor& x, const Tensor& mask, Tensor* weights) const {
    Forward here(*this);
    const Dims heads{x.size(0), -1, config.num_attention_heads, config.hidden_size / config.num_attention_heads};
    Tensor q = mul_scalar(q_proj(x));     // (B, T, C)
    q = transpose(view(q, heads), 1, 2);  // (B, H, T, D)
    Tensor k = k_proj(x), v = v_proj(x);  // (B, T, C)
    k = transpose(view(k, heads), 1, 2);  // (B, H, T, D)
    v = transpose(view(v, heads), 1, 2);  // (B, H, T, D)
    AttentionCall call;
    if (build().legacy()) {  // _shape made them contiguous
      q = contiguous(q);
      k = contiguous(k);
      v = contiguous(v);
      call.clamps_scores = true;
    }
    call.mask = mask;
    call.dropout = config.attention_dropout;
    call.has_kv_groups = false;
    Tensor out = attention(build(), q, k, v, call, weights);     // (B, T, H, D)
    out = contiguous(reshape(out, {x.size(0), x.size(1), -1}));  // (B, T, C)
    out = out_proj(out);
    return out;
  }

  const OPTConfig& config;
  Linear k_proj{*this, "k_proj", config.hidden_size, config.hidden_size, config.enable_bias};
  Linear v_proj{*this, "v_proj", config.hidden_size, config.hidden_size, config.enable_bias};
  Linear q_proj{*this, "q_proj", config.hidden_size, config.hidden_size, config.enable_bias};
  Linear out_proj{*this, "out_proj", config.hidden_size, config.hidden_size, config.enable_bias};
};

struct OPTDecoderLayer : Module {
  OPTDecoderLayer(Module& parent, std::string_view name, const OPTConfig& c) : Module(parent, name), config(c) {}

  Tensor operator()(const Tensor& x, const Tensor& mask) const {
    Forward here(*this);
    Tensor weights, residual = x, hidden = x;  // (B, T, C)
    if (config.do_layer_norm_before) hidden = self_attn_layer_norm(hidden);
    hidden = run_attention(self_attn, hidden, &weights, mask);
    hidden = dropout(hidden, config.dropout);
    hidden = add(residual, hidden);
    if (!config.do_layer_norm_before) hidden = self_attn_layer_norm(hidden);
    hidden = reshape(hidden, {-1, config.hidden_size});  // (B T, C)
    residual = hidden;
    if (config.do_layer_norm_before) hidden = final_layer_norm(hidden);
    hidden = fc1(hidden);  // (B T, F)
    hidden = activation(config.activation_function, hidden);
    hidden = fc2(hidden);  // (B T, C)
    hidden = dropout(hidden, config.dropout);
    hidden = view(add(residual, hidden), x.sizes());  // (B, T, C)
    if (!config.do_layer_norm_before) hidden = final_layer_norm(hidden);
    return hidden;
  }

  const OPTConfig& config;
  OPTAttention self_attn{*this, "self_attn", config};
  LayerNorm self_attn_layer_norm{*this, "self_attn_layer_norm", config.hidden_size, config.layer_norm_elementwise_affine};
  Linear fc1{*this, "fc1", config.hidden_size, config.ffn_dim, config.enable_bias};
  Linear fc2{*this, "fc2", config.ffn_dim, config.hidden_size, config.enable_bias};
  LayerNorm final_layer_norm{*this, "final_layer_norm", config.hidden_size, config.layer_norm_elementwise_affine};
};

// Positions start at 2.
struct OPTLearnedPositionalEmbedding : Embedding {
  OPTLearnedPositionalEmbedding(Module& parent, std::string_view name, int64_t rows, int64_t width)
      : Embedding(parent, name, checked_add(rows, 2), width) {}
  Tensor operator()(const Tensor& position_ids) const {
    Forward here(*this);
    return Embedding::operator()(nondiff("add", position_ids, DType::int64));
  }
};

struct OPTDecoder : Module {
  OPTDecoder(Module& parent, std::string_view name, const OPTConfig& c) : Module(parent, name), config(c) {
    if (c.word_embed_proj_dim != c.hidden_size) {
      project_out = std::make_unique<Linear>(*this, "project_out", c.hidden_size, c.word_embed_proj_dim, false);
      project_in = std::make_unique<Linear>(*this, "project_in", c.word_embed_proj_dim, c.hidden_size, false);
    }
    if (c.do_layer_norm_before && !c.remove_final_layer_norm)
      final_layer_norm = std::make_unique<LayerNorm>(*this, "final_layer_norm", c.hidden_size, c.layer_norm_elementwise_affine);
    layers = std::make_unique<ModuleList<OPTDecoderLayer>>(*this, "layers");
    for (int64_t i = 0; i < c.num_hidden_layers; ++i) layers->add(c);
  }

  Tensor operator()(const Tensor& input_ids) {
    Forward here(*this);
    require_positions("opt", input_ids.size(1), "max_position_embeddings", config.max_position_embeddings);
    Tensor embeds = embed_tokens(input_ids);  // (B, T, W)
    const bool given = build().batch && build().batch->attention_mask;
    const Tensor attention_mask =
        given ? build().batch->attention_mask : filled(tape(), "ones", {embeds.size(0), embeds.size(1)}, DType::float32);
    const Tensor positions = count(attention_mask);  // (B, T)
    const Tensor mask =
        create_causal_mask(build(), {embeds.size(0), embeds.size(1), embeds.size(1), embeds.dtype(), {}, {}, false, attention_mask});
    const Tensor position_embeds = embed_positions(positions);  // (B, T, C)
    if (project_in) embeds = (*project_in)(embeds);             // (B, T, C)
    Tensor hidden = add(embeds, position_embeds);
    for (OPTDecoderLayer& layer : *layers) {
      if (drops_layer(tape())) continue;
      auto run = [&layer, mask, positions](const Tensor& x) { return layer(x, mask); };
      hidden = run_block(layer, run, hidden);
    }
    if (final_layer_norm) hidden = (*final_layer_norm)(hidden);
    if (project_out) hidden = (*project_out)(hidden);  // (B, T, W)
    return hidden;
  }

  // (cumsum(mask) * mask - 1).long()
  static Tensor count(const Tensor& mask) {
    Tensor positions = cumsum(mask, 1, mask.dtype());
    {
      Tensor count = nondiff("mul", positions, mask.dtype());
      count = nondiff("sub", count, mask.dtype());
      positions = mask.dtype() == DType::int64 ? count : nondiff("_to_copy", count, DType::int64);
    }
    return positions;
  }

  const OPTConfig& config;
  Embedding embed_tokens{*this, "embed_tokens", config.vocab_size, config.word_embed_proj_dim};
  OPTLearnedPositionalEmbedding embed_positions{*this, "embed_positions", config.max_position_embeddings, config.hidden_size};
  std::unique_ptr<Linear> project_out, project_in;
  std::unique_ptr<LayerNorm> final_layer_norm;
  std::unique_ptr<ModuleList<OPTDecoderLayer>> layers;
};

struct OPTModel : Module {
  OPTModel(Module& parent, std::string_view name, const OPTConfig& c) : Module(parent, name), decoder(*this, "decoder", c) {}
  Tensor operator()(const Tensor& input_ids) { return decoder(input_ids); }
  const Tensor& embedding() const { return decoder.embed_tokens.weight; }
  OPTDecoder decoder;
};

std::unique_ptr<Model> make_opt(Build& build, const Config& c) {
  const OPTConfig config(c);
  const HeadSettings head{.width = config.word_embed_proj_dim,
                          .vocab_size = config.vocab_size,
                          .tied = config.tie_word_embeddings,
                          .upcast_before_4_49 = false};
  return std::make_unique<CausalLM<OPTConfig, OPTModel>>(build, config, head);
}

std::unique_ptr<Model> make_opt_classifier(Build& build, const Config& c) {
  const OPTConfig config(c);
  return std::make_unique<LastTokenClassifier<OPTConfig, OPTModel>>(build, c, config, "model", config.word_embed_proj_dim, 1);
}

}  // namespace

const Family& opt_family() {
  static const Family kFamily{
      .name = "opt",
      .models = {{"opt", {"OPTForCausalLM"}, InputKind::lm, 2048, make_opt},
                 {"opt-classifier", {"OPTForSequenceClassification"}, InputKind::cls, 2048, make_opt_classifier}},
      .presets =
          {{"opt-125m", R"({"hidden_size":768,"ffn_dim":3072,"num_hidden_layers":12,"num_attention_heads":12,"word_embed_proj_dim":768})",
            2048},
           {"opt-350m",
            R"({"hidden_size":1024,"ffn_dim":4096,"num_hidden_layers":24,"num_attention_heads":16,"word_embed_proj_dim":512,"do_layer_norm_before":false})",
            2048},
           {"opt-1.3b", R"({"hidden_size":2048,"ffn_dim":8192,"num_hidden_layers":24,"num_attention_heads":32,"word_embed_proj_dim":2048})",
            2048},
           {"opt-2.7b",
            R"({"hidden_size":2560,"ffn_dim":10240,"num_hidden_layers":32,"num_attention_heads":32,"word_embed_proj_dim":2560})", 2048},
           {"opt-6.7b",
            R"({"hidden_size":4096,"ffn_dim":16384,"num_hidden_layers":32,"num_attention_heads":32,"word_embed_proj_dim":4096})", 2048},
           {"opt-13b", R"({"hidden_size":5120,"ffn_dim":20480,"num_hidden_layers":40,"num_attention_heads":40,"word_embed_proj_dim":5120})",
            2048},
           {"opt-30b", R"({"hidden_size":7168,"ffn_dim":28672,"num_hidden_layers":48,"num_attention_heads":56,"word_embed_proj_dim":7168})",
            2048},
           {"opt-66b", R"({"hidden_size":9216,"ffn_dim":36864,"num_hidden_layers":64,"num_attention_heads":72,"word_embed_proj_dim":9216})",
            2048}},
      .adapters = {.lora = {"q_proj", "v_proj"}, .ia3 = {"q_proj", "k_proj", "fc2"}, .feedforward = {"fc2"}},
  };
  return kFamily;
}

}  // namespace plimsoll
