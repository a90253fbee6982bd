// transformers.models.qwen2_5_vl: Qwen2_5_VLForConditionalGeneration as a text encoder. Its eyes, unless vision_config is null, are weights
// that no text reads.
#include <nlohmann/json.hpp>

#include "model/text_encoders.h"
#include "nn/causal_lm.h"
#include "nn/decoder_stack.h"
#include "nn/text_encoder.h"
#include "nn/transformer.h"
#include "ops/matmul.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

struct VisionConfig {
  explicit VisionConfig(const Config& c)
      : depth(c.size({"depth"}, 32)),
        hidden_size(c.size({"hidden_size"}, 3584)),
        intermediate_size(c.size({"intermediate_size"}, 3420)),
        out_hidden_size(c.size({"out_hidden_size"}, 3584)),
        heads(c.size({"num_heads"}, 16)),
        in_channels(c.size({"in_channels", "in_chans"}, 3)),
        patch(c.size({"patch_size", "spatial_patch_size"}, 14)),
        temporal_patch(c.size({"temporal_patch_size"}, 2)),
        merge(c.size({"spatial_merge_size"}, 2)) {
    c.require_divides("num_heads", heads, "hidden_size", hidden_size);
  }
  int64_t depth, hidden_size, intermediate_size, out_hidden_size, heads, in_channels, patch, temporal_patch, merge;
};

DecoderConfig text_config(const Config& c) {
  DecoderConfig d;
  d.vocab_size = 152064;
  d.hidden_size = 8192;
  d.intermediate_size = 29568;
  d.num_hidden_layers = 80;
  d.num_attention_heads = 64;
  d.num_key_value_heads = 8;
  read_decoder_config(c, d);
  RopeDefaults rope{d.head_dim, 32768};
  rope.types = {"default", "mrope"};
  d.rope = rope_settings(c, rope);
  d.qkv_bias = true;
  if (c.flag({"use_sliding_window"}, false)) throw Error("[qwen2.5-vl-text] use_sliding_window is not simulated", "set it to false");
  return d;
}

// Qwen2_5_VisionTransformerPretrainedModel: its weights.
struct VisionTower : Module {
  struct Weight : Module {
    Weight(Module& parent, std::string_view name, const Dims& sizes) : Module(parent, name), weight(parameter("weight", sizes)) {}
    Tensor weight;
  };
  struct PatchEmbed : Module {
    PatchEmbed(Module& parent, const VisionConfig& c)
        : Module(parent, "patch_embed"), proj(*this, "proj", {c.hidden_size, c.in_channels, c.temporal_patch, c.patch, c.patch}) {}
    Weight proj;
  };
  struct Rotary : Module {
    Rotary(Module& parent, const VisionConfig& c)
        : Module(parent, "rotary_pos_emb"), inv_freq(buffer("inv_freq", {(c.hidden_size / c.heads / 2 + 1) / 2})) {}
    Tensor inv_freq;
  };
  struct Attention : Module {
    Attention(Module& parent, const VisionConfig& c)
        : Module(parent, "attn"),
          qkv(*this, "qkv", c.hidden_size, checked_mul(3, c.hidden_size)),
          proj(*this, "proj", c.hidden_size, c.hidden_size) {}
    Linear qkv, proj;
  };
  struct Block : Module {
    Block(Module& parent, std::string_view name, const VisionConfig& c)
        : Module(parent, name),
          norm1(*this, "norm1", c.hidden_size),
          norm2(*this, "norm2", c.hidden_size),
          attn(*this, c),
          mlp(*this, "mlp", c.hidden_size, c.intermediate_size, true, "silu") {}
    RMSNorm norm1, norm2;
    Attention attn;
    GatedMLP mlp;
  };
  struct MergerMlp : Module {
    MergerMlp(Module& parent, const VisionConfig& c)
        : Module(parent, "mlp"), first(*this, "0", width(c), width(c)), last(*this, "2", width(c), c.out_hidden_size) {}
    static int64_t width(const VisionConfig& c) { return checked_mul(c.hidden_size, checked_mul(c.merge, c.merge)); }
    Linear first, last;
  };
  struct Merger : Module {
    Merger(Module& parent, const VisionConfig& c) : Module(parent, "merger"), ln_q(*this, "ln_q", c.hidden_size), mlp(*this, c) {}
    RMSNorm ln_q;
    MergerMlp mlp;
  };

  VisionTower(Module& parent, const VisionConfig& c)
      : Module(parent, "visual"), patch_embed(*this, c), rotary_pos_emb(*this, c), blocks(*this, "blocks"), merger(add_blocks(c), c) {}
  Module& add_blocks(const VisionConfig& c) {
    for (int64_t i = 0; i < c.depth; ++i) blocks.add(c);
    return *this;
  }
  PatchEmbed patch_embed;
  Rotary rotary_pos_emb;
  ModuleList<Block> blocks;
  Merger merger;
};

// Sections of three tables, side by side: one table, (B, 1, T, D). Every attention makes its own.
Tensor merged(const Tensor& tables) {
  return unsqueeze(filled(tables.tape(), "cat", {tables.size(1), tables.size(2), tables.size(3)}, tables.dtype()), 1);
}

struct VLAttention : Module {
  VLAttention(Module& parent, std::string_view name, const DecoderConfig& c)
      : Module(parent, name),
        config(c),
        q_proj(*this, "q_proj", c.hidden_size, c.num_attention_heads * c.head_dim),
        k_proj(*this, "k_proj", c.hidden_size, c.num_key_value_heads * c.head_dim),
        v_proj(*this, "v_proj", c.hidden_size, c.num_key_value_heads * c.head_dim),
        o_proj(*this, "o_proj", c.num_attention_heads * c.head_dim, c.hidden_size, false) {}

  Tensor operator()(const Tensor& x, const CosSin& tables, const Tensor& mask) const {
    Forward here(*this);
    const Dims heads{x.size(0), x.size(1), -1, config.head_dim};
    Tensor q = q_proj(x), k = k_proj(x), v = v_proj(x);
    q = transpose(view(q, heads), 1, 2);  // (B, H, T, D)
    k = transpose(view(k, heads), 1, 2);  // (B, KV, T, D)
    v = transpose(view(v, heads), 1, 2);
    {
      const Tensor cos = merged(tables.cos), sin = merged(tables.sin);
      Tensor q_embed = rotate(q, cos, sin), k_embed = rotate(k, cos, sin);
      q = q_embed;
      k = k_embed;
    }
    AttentionCall call;
    call.mask = mask;
    call.dropout = config.attention_dropout;
    call.kv_groups = config.num_attention_heads / config.num_key_value_heads;
    Tensor weights;
    Tensor out = attention(build(), q, k, v, call, &weights);    // (B, T, H, D)
    out = contiguous(reshape(out, {x.size(0), x.size(1), -1}));  // (B, T, H D)
    out = o_proj(out);                                           // (B, T, C)
    return out;
  }

  const DecoderConfig& config;
  Linear q_proj, k_proj, v_proj, o_proj;
};

struct VLLayer : Module {
  VLLayer(Module& parent, std::string_view name, const DecoderConfig& c)
      : Module(parent, name),
        self_attn(*this, "self_attn", c),
        mlp(*this, "mlp", c.hidden_size, c.intermediate_size, false, c.hidden_act),
        input_layernorm(*this, "input_layernorm", c.hidden_size),
        post_attention_layernorm(*this, "post_attention_layernorm", c.hidden_size) {}
  Tensor operator()(const Tensor& x, const CosSin& tables, const Tensor& mask) const {
    Forward here(*this);
    Tensor residual = x;
    Tensor hidden = input_layernorm(x);  // (B, T, C)
    hidden = self_attn(hidden, tables, mask);
    hidden = add(residual, hidden);
    residual = hidden;
    hidden = post_attention_layernorm(hidden);
    hidden = mlp(hidden);
    hidden = add(residual, hidden);
    return hidden;
  }
  VLAttention self_attn;
  GatedMLP mlp;
  RMSNorm input_layernorm, post_attention_layernorm;
};

// Qwen2_5_VLTextModel
struct LanguageModel : Module {
  LanguageModel(Module& parent, const DecoderConfig& c)
      : Module(parent, "language_model"),
        embed_tokens(*this, "embed_tokens", c.vocab_size, c.hidden_size),
        layers(*this, "layers"),
        norm(add_layers(c), "norm", c.hidden_size),
        rotary_emb(*this, "rotary_emb", c.rope) {}
  Module& add_layers(const DecoderConfig& c) {
    for (int64_t i = 0; i < c.num_hidden_layers; ++i) layers.add(c);
    return *this;
  }

  Tensor operator()(const Tensor& embeds, Tensors* states, const Tensor& attention_mask) {
    Forward here(*this);
    const int64_t batch = embeds.size(0), tokens = embeds.size(1);
    Tensor positions = arange(tape(), tokens);
    positions = nondiff("add", positions, DType::int64);
    positions = expand(view(positions, {1, 1, -1}), {3, batch, tokens});
    MaskArgs args{batch, tokens, tokens, embeds.dtype(), {}, {}};
    args.attention_mask = attention_mask;
    const Tensor mask = create_causal_mask(build(), args);
    Tensor hidden = embeds;
    const CosSin tables = rotary(hidden, positions);
    for (VLLayer& layer : layers) {
      if (states) states->push_back(hidden);
      hidden = layer(hidden, tables, mask);
    }
    hidden = norm(hidden);
    if (states) states->push_back(hidden);
    return hidden;
  }

  // Three tables: of time, height and width. (3, B, T, D)
  CosSin rotary(const Tensor& x, const Tensor& positions) const {
    Forward here(rotary_emb);
    const Tensor frequencies = expand(view(rotary_emb.inv_freq, {1, 1, -1, 1}), {3, positions.size(1), -1, 1});
    const Tensor wide = to(unsqueeze(positions, 2), DType::float32);
    AutocastGuard fp32(tape(), std::nullopt);
    const Tensor freqs = transpose(matmul(frequencies, wide), 2, 3);
    const Tensor emb = cat({freqs, freqs}, -1);
    CosSin tables;
    tables.cos = mul_scalar(cos(emb));
    tables.sin = mul_scalar(sin(emb));
    return {to(tables.cos, x.dtype()), to(tables.sin, x.dtype())};
  }

  Embedding embed_tokens;
  ModuleList<VLLayer> layers;
  RMSNorm norm;
  RotaryEmbedding rotary_emb;
};

struct VLModel : Module {
  VLModel(Module& parent, const DecoderConfig& text, const std::optional<VisionConfig>& vision)
      : Module(parent, "model"), visual(vision ? std::make_unique<VisionTower>(*this, *vision) : nullptr), language_model(*this, text) {}
  std::unique_ptr<VisionTower> visual;
  LanguageModel language_model;
};

struct Qwen2_5_VLTextEncoder : TextEncoder {
  Qwen2_5_VLTextEncoder(Module& parent, std::string_view name, const Config& c)
      : TextEncoder(parent, name), config(text_config(c)), model(*this, config, vision_config(c)) {
    const HeadSettings h = plimsoll::lm_head(config);
    lm_head = h.tied ? std::make_unique<Linear>(*this, h.head, model.language_model.embed_tokens.weight, false)
                     : std::make_unique<Linear>(*this, h.head, h.width, h.vocab_size, false);
  }

  static std::optional<VisionConfig> vision_config(const Config& c) {
    if (c.is_null("vision_config")) return std::nullopt;
    const nlohmann::json* value = c.find({"vision_config"});
    if (value && !value->is_object())
      throw Error("[" + c.source() + "] vision_config is " + dump(*value).substr(0, 80) + ", expected a mapping or null",
                  R"(e.g. {"hidden_size": 1280})");
    return VisionConfig(Config(c.source() + ": vision_config", value ? *value : nlohmann::json::object()));
  }

  TextStates encode(const Tensor& input_ids, bool output_hidden_states) override {
    Forward here(*this);
    TextStates out;
    out.attention_mask = empty(tape(), input_ids.sizes(), DType::int64);
    build().cache = &out.kept;
    {
      const Tensor embeds = model.language_model.embed_tokens(input_ids);  // (N, T, C)
      out.last_hidden_state = model.language_model(embeds, output_hidden_states ? &out.hidden_states : nullptr, out.attention_mask);
    }
    build().cache = nullptr;
    out.kept.push_back((*lm_head)(out.last_hidden_state));  // (N, T, vocabulary)
    return out;
  }

  Dims result_sizes(int64_t samples, int64_t tokens) const override { return {samples, tokens, config.hidden_size}; }
  int64_t usual_tokens() const override { return 512; }

  DecoderConfig config;
  VLModel model;
  std::unique_ptr<Linear> lm_head;
};

}  // namespace

std::unique_ptr<TextEncoder> make_qwen2_5_vl_text_model(Module& parent, std::string_view name, const Config& c) {
  return std::make_unique<Qwen2_5_VLTextEncoder>(parent, name, c);
}

std::unique_ptr<Model> make_qwen2_5_vl_text(Build& build, const Config& c) {
  return make_text_encoder_training(build, c, make_qwen2_5_vl_text_model);
}

}  // namespace plimsoll
