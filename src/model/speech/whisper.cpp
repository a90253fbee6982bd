// transformers.models.whisper: WhisperForConditionalGeneration. A sample is a spectrogram of the length that the encoder has positions for
// (30 seconds) and `seq` labels. Every layer is run (layer drop leaves some out).
#include <fmt/format.h>

#include "model/family.h"
#include "nn/encoder_decoder.h"
#include "nn/masking.h"
#include "ops/conv.h"
#include "ops/index.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

constexpr int64_t kFramesPerPosition = 2;  // the second convolution's stride

struct WhisperConfig : EncoderDecoderConfig {
  explicit WhisperConfig(const Config& c)
      : EncoderDecoderConfig(c, {.vocab_size = 51865, .d_model = 384, .layers = 4, .heads = 6, .ffn_dim = 1536, .dropout = 0.0}),
        num_mel_bins(c.size({"num_mel_bins"}, 80)),
        max_source_positions(c.size({"max_source_positions"}, 1500)),
        max_target_positions(c.size({"max_target_positions"}, 448)) {
    is_whisper = true;
    if (c.flag({"apply_spec_augment"}, false))
      throw Error(fmt::format("[{}] apply_spec_augment true is not simulated", c.source()), "leave it out: the default is false");
  }
  int64_t num_mel_bins, max_source_positions, max_target_positions;
};

struct MelConv : Module {
  MelConv(Module& parent, std::string_view name, int64_t in, int64_t out, int64_t stride)
      : Module(parent, name), stride(stride), weight(parameter("weight", {out, in, 3})), bias(parameter("bias", {out})) {}
  Tensor operator()(const Tensor& x) const {
    Forward here(*this);
    return conv1d(x, weight, bias, {.stride = stride, .padding = 1});
  }
  int64_t stride;
  Tensor weight, bias;
};

struct WhisperEncoder : Module {
  WhisperEncoder(Module& parent, std::string_view name, const WhisperConfig& c) : Module(parent, name), config(c) {
    embed_positions.weight.body().requires_grad = false;
  }
  Module& add_layers() {
    for (int64_t i = 0; i < config.encoder_layers; ++i) layers.add(config);
    return *this;
  }

  Tensor operator()(const Tensor& input_features) {
    Forward here(*this);
    Tensor inputs_embeds = conv1(input_features);  // (B, C, frames)
    require_input_grad(build(), inputs_embeds);
    inputs_embeds = gelu(inputs_embeds);
    inputs_embeds = gelu(conv2(inputs_embeds));  // (B, C, T)
    inputs_embeds = permute(inputs_embeds, {0, 2, 1});
    const Tensor all_positions = arange(tape(), config.max_source_positions);
    Tensor hidden = add(inputs_embeds, embed_positions(all_positions));  // (B, T, C)
    hidden = dropout(hidden, config.dropout);
    hidden = run_encoder(layers, std::move(hidden), {});
    return layer_norm(hidden);
  }

  const WhisperConfig& config;
  MelConv conv1{*this, "conv1", config.num_mel_bins, config.d_model, 1};
  MelConv conv2{*this, "conv2", config.d_model, config.d_model, kFramesPerPosition};
  Embedding embed_positions{*this, "embed_positions", config.max_source_positions, config.d_model};
  ModuleList<EncoderLayer> layers{*this, "layers"};
  LayerNorm layer_norm{add_layers(), "layer_norm", config.d_model};
};

struct WhisperDecoder : Module {
  WhisperDecoder(Module& parent, std::string_view name, const WhisperConfig& c) : Module(parent, name), config(c) {}
  Module& add_layers() {
    for (int64_t i = 0; i < config.decoder_layers; ++i) layers.add(config);
    return *this;
  }

  Tensor operator()(const Tensor& input_ids, const Tensor& encoder_states) {
    Forward here(*this);
    const int64_t batch = input_ids.size(0), tokens = input_ids.size(1);
    const Tensor inputs_embeds = embed_tokens(input_ids);  // (B, T, C)
    Tensor position_ids = nondiff("add", arange(tape(), tokens), DType::int64);
    position_ids = filled(tape(), "repeat", {batch, tokens}, DType::int64);
    const Tensor positions = positions_at(position_ids);  // (B, T, C)
    Tensor hidden = add(inputs_embeds, positions);
    hidden = dropout(hidden, config.dropout);
    const Tensor mask = create_causal_mask(build(), {batch, tokens, tokens, inputs_embeds.dtype(), position_ids, {}});
    hidden = run_decoder(layers, std::move(hidden), mask, encoder_states, {});
    return layer_norm(hidden);
  }

  Tensor positions_at(const Tensor& position_ids) const {
    Forward here(embed_positions);
    return index(embed_positions.weight, position_ids);
  }

  const WhisperConfig& config;
  Embedding embed_tokens{*this, "embed_tokens", config.vocab_size, config.d_model};
  Embedding embed_positions{*this, "embed_positions", config.max_target_positions, config.d_model};
  ModuleList<DecoderLayer> layers{*this, "layers"};
  LayerNorm layer_norm{add_layers(), "layer_norm", config.d_model};
};

struct WhisperModel : Module {
  WhisperModel(Module& parent, std::string_view name, const WhisperConfig& c) : Module(parent, name), config(c) {}
  const WhisperConfig& config;
  WhisperEncoder encoder{*this, "encoder", config};
  WhisperDecoder decoder{*this, "decoder", config};
};

struct WhisperForConditionalGeneration : Model {
  WhisperForConditionalGeneration(Build& build, const Config& c)
      : Model(build),
        config(c),
        proj_out(config.tie_word_embeddings ? std::make_unique<Linear>(*this, "proj_out", model.decoder.embed_tokens.weight, false)
                                            : std::make_unique<Linear>(*this, "proj_out", config.d_model, config.vocab_size, false)) {
    // gradient_checkpointing_enable: without adapters only for models whose main input are ids.
    build.input_require_grads = build.input_require_grads && build.tuning.has_adapter();
  }

  Tensors make_inputs(int64_t samples, int64_t length, DType dtype) override {
    require_positions("whisper", length, "max_target_positions", config.max_target_positions);
    return {empty(tape(), {samples, config.num_mel_bins, kFramesPerPosition * config.max_source_positions}, dtype),
            empty(tape(), {samples, length}, DType::int64)};
  }

  std::string sample(int64_t length) const override {
    return fmt::format("{} frames and {} labels", kFramesPerPosition * config.max_source_positions, length);
  }

  Output forward(const Batch& batch) override {
    const Tensor &input_features = batch.own[0], &labels = batch.own[1];
    const Tensor decoder_input_ids = shift_tokens_right(labels);             // (B, T)
    const Tensor encoder_states = model.encoder(input_features);             // (B, positions, C)
    const Tensor hidden = model.decoder(decoder_input_ids, encoder_states);  // (B, T, C)
    const Tensor lm_logits = (*proj_out)(hidden);                            // (B, T, V)
    return {flat_cross_entropy(lm_logits, labels, false), {lm_logits, encoder_states}};
  }

  WhisperConfig config;
  WhisperModel model{*this, "model", config};
  std::unique_ptr<Linear> proj_out;
};

std::unique_ptr<Model> make_whisper(Build& build, const Config& config) {
  return std::make_unique<WhisperForConditionalGeneration>(build, config);
}

}  // namespace

const Family& whisper_family() {
  static const Family kFamily{
      .name = "whisper",
      .models = {{"whisper", {"WhisperForConditionalGeneration"}, InputKind::own, 448, make_whisper}},
      .presets =
          {{"whisper-tiny",
            R"({"d_model":384,"encoder_layers":4,"decoder_layers":4,"encoder_attention_heads":6,"decoder_attention_heads":6,"encoder_ffn_dim":1536,"decoder_ffn_dim":1536})",
            448},
           {"whisper-base",
            R"({"d_model":512,"encoder_layers":6,"decoder_layers":6,"encoder_attention_heads":8,"decoder_attention_heads":8,"encoder_ffn_dim":2048,"decoder_ffn_dim":2048})",
            448},
           {"whisper-small",
            R"({"d_model":768,"encoder_layers":12,"decoder_layers":12,"encoder_attention_heads":12,"decoder_attention_heads":12,"encoder_ffn_dim":3072,"decoder_ffn_dim":3072})",
            448},
           {"whisper-medium",
            R"({"d_model":1024,"encoder_layers":24,"decoder_layers":24,"encoder_attention_heads":16,"decoder_attention_heads":16,"encoder_ffn_dim":4096,"decoder_ffn_dim":4096})",
            448},
           {"whisper-large-v3",
            R"({"d_model":1280,"encoder_layers":32,"decoder_layers":32,"encoder_attention_heads":20,"decoder_attention_heads":20,"encoder_ffn_dim":5120,"decoder_ffn_dim":5120,"vocab_size":51866,"num_mel_bins":128})",
            448}},
  };
  return kFamily;
}

}  // namespace plimsoll
