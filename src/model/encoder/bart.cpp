// transformers.models.bart: BartForConditionalGeneration. Every layer is run (layer drop leaves some out).
#include "model/family.h"
#include "nn/encoder_decoder.h"
#include "nn/masking.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

constexpr int64_t kPositionOffset = 2;  // the table's first rows are nobody's

struct BartConfig : EncoderDecoderConfig {
  explicit BartConfig(const Config& c)
      : EncoderDecoderConfig(c, {.vocab_size = 50265, .d_model = 1024, .layers = 12, .heads = 16, .ffn_dim = 4096, .dropout = 0.1}),
        max_position_embeddings(c.size({"max_position_embeddings"}, 1024)) {}
  int64_t max_position_embeddings;
};

struct BartScaledWordEmbedding : Embedding {
  using Embedding::Embedding;
  Tensor scaled(const Tensor& embeds, DType) const override { return mul_scalar(embeds); }
};

// What encoder and decoder do before their layers.
struct BartStack : Module {
  BartStack(Module& parent, std::string_view name, const BartConfig& c, const Tensor& shared)
      : Module(parent, name), config(c), embed_tokens(make_tokens(shared)) {
    embed_positions = std::make_unique<Embedding>(*this, "embed_positions", c.max_position_embeddings + kPositionOffset, c.d_model);
  }

  std::unique_ptr<BartScaledWordEmbedding> make_tokens(const Tensor& shared) {
    return config.tie_word_embeddings ? std::make_unique<BartScaledWordEmbedding>(*this, "embed_tokens", shared)
                                      : std::make_unique<BartScaledWordEmbedding>(*this, "embed_tokens", config.vocab_size, config.d_model);
  }

  Tensor positions(const Tensor& position_ids) const {
    require_positions("bart", position_ids.size(-1), "max_position_embeddings", config.max_position_embeddings);
    const Tensor shifted = nondiff("add", position_ids, DType::int64);
    return (*embed_positions)(shifted);
  }

  Tensor embed(const Tensor& inputs_embeds, const Tensor& embed_pos) const {
    Tensor hidden = add(inputs_embeds, embed_pos);  // (B, T, C)
    hidden = (*layernorm_embedding)(hidden);
    return dropout(hidden, config.dropout);
  }

  const BartConfig& config;
  std::unique_ptr<BartScaledWordEmbedding> embed_tokens;
  std::unique_ptr<Embedding> embed_positions;
  std::unique_ptr<LayerNorm> layernorm_embedding;  // after the layers
};

struct BartEncoder : BartStack {
  BartEncoder(Module& parent, std::string_view name, const BartConfig& c, const Tensor& shared) : BartStack(parent, name, c, shared) {
    for (int64_t i = 0; i < c.encoder_layers; ++i) layers.add(c);
    layernorm_embedding = std::make_unique<LayerNorm>(*this, "layernorm_embedding", c.d_model);
  }

  Tensor operator()(const Tensor& input_ids) {
    Forward here(*this);
    const int64_t batch = input_ids.size(0), tokens = input_ids.size(1);
    const Tensor inputs_embeds = (*embed_tokens)(input_ids);                          // (B, T, C)
    const Tensor embed_pos = positions(expand(arange(tape(), tokens), {batch, -1}));  // (B, T, C)
    Tensor hidden = embed(inputs_embeds, embed_pos);
    const Tensor mask = create_bidirectional_mask(build(), {batch, tokens, tokens, inputs_embeds.dtype(), {}, {}});
    return run_encoder(layers, std::move(hidden), mask);
  }

  ModuleList<EncoderLayer> layers{*this, "layers"};
};

struct BartDecoder : BartStack {
  BartDecoder(Module& parent, std::string_view name, const BartConfig& c, const Tensor& shared) : BartStack(parent, name, c, shared) {
    for (int64_t i = 0; i < c.decoder_layers; ++i) layers.add(c);
    layernorm_embedding = std::make_unique<LayerNorm>(*this, "layernorm_embedding", c.d_model);
  }

  Tensor operator()(const Tensor& input_ids, const Tensor& encoder_states) {
    Forward here(*this);
    const int64_t batch = input_ids.size(0), tokens = input_ids.size(1);
    const Tensor inputs_embeds = (*embed_tokens)(input_ids);  // (B, T, C)
    const Tensor position_ids = nondiff("add", arange(tape(), tokens), DType::int64);
    MaskArgs args{batch, tokens, tokens, inputs_embeds.dtype(), {}, {}};
    args.attention_mask = filled(tape(), "ones", {batch, tokens}, DType::float32);
    args.ignores_batch = true;
    const Tensor mask = create_causal_mask(build(), args);  // (B, 1, T, T)
    args.attention_mask.reset();
    args.ignores_batch = false;
    args.keys = encoder_states.size(1);
    args.dtype = encoder_states.dtype();
    const Tensor encoder_mask = create_bidirectional_mask(build(), args);  // (B, 1, T, S)
    const Tensor embed_pos = positions(unsqueeze(position_ids, 0));        // (1, T, C)
    return run_decoder(layers, embed(inputs_embeds, embed_pos), mask, encoder_states, encoder_mask);
  }

  ModuleList<DecoderLayer> layers{*this, "layers"};
};

struct BartModel : Module {
  BartModel(Module& parent, std::string_view name, const BartConfig& c) : Module(parent, name), config(c) {}

  struct Outputs {
    Tensor last_hidden_state, encoder_last_hidden_state;  // (B, T, C)
  };
  // With labels there is no cache, whatever the configuration says.
  Outputs operator()(const Tensor& input_ids, const Tensor& decoder_input_ids) {
    Forward here(*this);
    Tensors* cache = std::exchange(build().cache, nullptr);
    Outputs out;
    out.encoder_last_hidden_state = encoder(input_ids);
    out.last_hidden_state = decoder(decoder_input_ids, out.encoder_last_hidden_state);
    build().cache = cache;
    return out;
  }

  const BartConfig& config;
  BartScaledWordEmbedding shared{*this, "shared", config.vocab_size, config.d_model};
  BartEncoder encoder{*this, "encoder", config, shared.weight};
  BartDecoder decoder{*this, "decoder", config, shared.weight};
};

struct BartForConditionalGeneration : Model {
  BartForConditionalGeneration(Build& build, const Config& c)
      : Model(build),
        config(c),
        final_logits_bias(buffer("final_logits_bias", {1, config.vocab_size})),
        lm_head(config.tie_word_embeddings ? std::make_unique<Linear>(*this, "lm_head", model.shared.weight, false)
                                           : std::make_unique<Linear>(*this, "lm_head", config.d_model, config.vocab_size, false)) {}

  Output forward(const Batch& batch) override {
    const Tensor decoder_input_ids = shift_tokens_right(batch.labels ? batch.labels : batch.input_ids);
    const BartModel::Outputs outputs = model(batch.input_ids, decoder_input_ids);
    Tensor lm_logits = (*lm_head)(outputs.last_hidden_state);  // (B, T, V)
    lm_logits = add(lm_logits, final_logits_bias);
    return {flat_cross_entropy(lm_logits, batch.labels, false), {lm_logits, outputs.encoder_last_hidden_state}};
  }

  BartConfig config;
  BartModel model{*this, "model", config};
  Tensor final_logits_bias;
  std::unique_ptr<Linear> lm_head;
};

std::unique_ptr<Model> make_bart(Build& build, const Config& config) {
  return std::make_unique<BartForConditionalGeneration>(build, config);
}

}  // namespace

const Family& bart_family() {
  static const Family kFamily{
      .name = "bart",
      .models = {{"bart", {"BartForConditionalGeneration"}, InputKind::lm, 1024, make_bart}},
      .presets =
          {{"bart-base",
            R"({"d_model":768,"encoder_layers":6,"decoder_layers":6,"encoder_attention_heads":12,"decoder_attention_heads":12,"encoder_ffn_dim":3072,"decoder_ffn_dim":3072})",
            1024},
           {"bart-large", R"({})", 1024}},
  };
  return kFamily;
}

}  // namespace plimsoll
