// transformers.models.qwen2_5_vl: Qwen2_5_VLForConditionalGeneration as a text encoder. Its eyes, unless vision_config is null, are weights
// that no text reads.
#include <nlohmann/json.hpp>

#include "model/family.h"
#include "nn/causal_lm.h"
#include "nn/decoder_stack.h"
#include "nn/qwen_vl.h"
#include "nn/text_encoder.h"

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

  VisionTower(Module& parent, const VisionConfig& c) : Module(parent, "visual"), config(c), merger(add_blocks(c), c) {}
  Module& add_blocks(const VisionConfig& c) {
    for (int64_t i = 0; i < c.depth; ++i) blocks.add(c);
    return *this;
  }
  const VisionConfig& config;
  PatchEmbed patch_embed{*this, config};
  Rotary rotary_pos_emb{*this, config};
  ModuleList<Block> blocks{*this, "blocks"};
  Merger merger;
};

struct VLModel : Module {
  VLModel(Module& parent, const DecoderConfig& text, const std::optional<VisionConfig>& vision)
      : Module(parent, "model"),
        visual(vision ? std::make_unique<VisionTower>(*this, *vision) : nullptr),
        language_model(*this, "language_model", text) {}
  std::unique_ptr<VisionTower> visual;
  QwenVLTextModel language_model;
};

struct Qwen2_5_VLTextEncoder : TextEncoder {
  Qwen2_5_VLTextEncoder(Module& parent, std::string_view name, const Config& c)
      : TextEncoder(parent, name), config(qwen_vl_text_config(c)), model(*this, config, vision_config(c)) {
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
      out.last_hidden_state = model.language_model(embeds, {}, out.attention_mask, output_hidden_states ? &out.hidden_states : nullptr);
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

std::unique_ptr<TextEncoder> make_qwen2_5_vl_text_model(Module& parent, std::string_view name, const Config& c) {
  return std::make_unique<Qwen2_5_VLTextEncoder>(parent, name, c);
}

std::unique_ptr<Model> make_qwen2_5_vl_text(Build& build, const Config& c) {
  return make_text_encoder_training(build, c, make_qwen2_5_vl_text_model);
}

}  // namespace

const Family& qwen2_5_vl_text_family() {
  static const Family kFamily{
      .name = "qwen2.5-vl-text",
      .models = {{"qwen2.5-vl-text", {}, InputKind::own, 512, make_qwen2_5_vl_text, make_qwen2_5_vl_text_model}},
      .presets =
          {{"qwen2.5-vl-3b-text",
            R"({"vocab_size":151936,"hidden_size":2048,"intermediate_size":11008,"num_hidden_layers":36,"num_attention_heads":16,"num_key_value_heads":2,"tie_word_embeddings":true,"vision_config":{"hidden_size":1280,"out_hidden_size":2048}})",
            512},
           {"qwen2.5-vl-7b-text",
            R"({"hidden_size":3584,"intermediate_size":18944,"num_hidden_layers":28,"num_attention_heads":28,"num_key_value_heads":4,"vision_config":{"hidden_size":1280,"out_hidden_size":3584}})",
            512}},
  };
  return kFamily;
}

}  // namespace plimsoll
