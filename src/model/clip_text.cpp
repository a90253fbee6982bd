// transformers.models.clip: CLIPTextModel and CLIPTextModelWithProjection.
#include "model/families.h"
#include "model/text_encoders.h"
#include "nn/feed_forward.h"
#include "nn/layers.h"
#include "nn/masking.h"
#include "nn/self_attention.h"
#include "nn/transformer.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

constexpr int64_t kWrongEos = 2;  // of old configurations: the highest token ends the text

struct ClipTextConfig {
  explicit ClipTextConfig(const Config& c)
      : vocab_size(c.size({"vocab_size"}, 49408)),
        hidden_size(c.size({"hidden_size"}, 512)),
        intermediate_size(c.size({"intermediate_size"}, 2048)),
        projection_dim(c.size({"projection_dim"}, 512)),
        num_hidden_layers(c.size({"num_hidden_layers"}, 12)),
        num_attention_heads(c.size({"num_attention_heads"}, 8)),
        max_position_embeddings(c.size({"max_position_embeddings"}, 77)),
        eos_token_id(c.integer({"eos_token_id"}, 49407)),
        hidden_act(c.text({"hidden_act"}, "quick_gelu")),
        attention_dropout(c.number({"attention_dropout"}, 0.0)) {
    reject_captured_outputs(c);
    c.require_divides("num_attention_heads", num_attention_heads, "hidden_size", hidden_size);
  }
  int64_t vocab_size, hidden_size, intermediate_size, projection_dim, num_hidden_layers, num_attention_heads, max_position_embeddings;
  int64_t eos_token_id;
  std::string hidden_act;
  double attention_dropout;
};

struct ClipTextEmbeddings : Module {
  ClipTextEmbeddings(Module& parent, std::string_view name, const ClipTextConfig& c)
      : Module(parent, name),
        token_embedding(*this, "token_embedding", c.vocab_size, c.hidden_size),
        position_embedding(*this, "position_embedding", c.max_position_embeddings, c.hidden_size),
        position_ids(buffer("position_ids", {1, c.max_position_embeddings}, DType::int64)) {}

  Tensor operator()(const Tensor& input_ids) const {
    Forward here(*this);
    require_positions("clip", input_ids.size(1), "max_position_embeddings", position_ids.size(1));
    const Tensor positions = getitem(position_ids, 1, 0, input_ids.size(1));  // (1, T)
    Tensor inputs_embeds = token_embedding(input_ids);                        // (N, T, C)
    require_input_grad(build(), inputs_embeds);
    const Tensor position_embeddings = position_embedding(positions);  // (1, T, C)
    return add(inputs_embeds, position_embeddings);
  }

  Embedding token_embedding, position_embedding;
  Tensor position_ids;
};

struct ClipEncoderLayer : Module {
  ClipEncoderLayer(Module& parent, std::string_view name, const ClipTextConfig& c)
      : Module(parent, name),
        self_attn(
            *this, "self_attn",
            {c.hidden_size, c.num_attention_heads, {.mask = {}, .dropout = c.attention_dropout, .has_kv_groups = false, .caches = false}}),
        layer_norm1(*this, "layer_norm1", c.hidden_size),
        mlp(*this, "mlp", {"fc1", "fc2", c.hidden_size, c.intermediate_size, c.hidden_act}),
        layer_norm2(*this, "layer_norm2", c.hidden_size) {}

  Tensor operator()(const Tensor& x, const Tensor& mask) const {
    Forward here(*this);
    Tensor weights;  // eager attention's live until the layer returns
    Tensor residual = x;
    Tensor hidden = layer_norm1(x);  // (N, T, C)
    hidden = run_attention(self_attn, hidden, &weights, mask);
    hidden = add(residual, hidden);
    residual = hidden;
    hidden = layer_norm2(hidden);
    hidden = run_part(mlp, hidden);
    hidden = add(residual, hidden);
    return hidden;
  }

  SelfAttention self_attn;
  LayerNorm layer_norm1;
  FeedForward mlp;
  LayerNorm layer_norm2;
};

struct ClipEncoder : Module {
  ClipEncoder(Module& parent, std::string_view name, const ClipTextConfig& c) : Module(parent, name), layers(*this, "layers") {
    for (int64_t i = 0; i < c.num_hidden_layers; ++i) layers.add(c);
  }
  ModuleList<ClipEncoderLayer> layers;
};

struct ClipTextModel : TextEncoder {
  ClipTextModel(Module& parent, std::string_view name, const Config& c)
      : TextEncoder(parent, name),
        config(c),
        embeddings(*this, "embeddings", config),
        encoder(*this, "encoder", config),
        final_layer_norm(*this, "final_layer_norm", config.hidden_size) {}

  TextStates encode(const Tensor& input_ids, bool output_hidden_states) override {
    Forward here(*this);
    Tensor hidden = embeddings(input_ids);  // (N, T, C)
    MaskArgs args;
    args.batch = input_ids.size(0);
    args.queries = args.keys = input_ids.size(1);
    args.dtype = hidden.dtype();
    const Tensor mask = create_causal_mask(build(), args);
    TextStates out;
    const Tensor first = hidden;  // the caller's name
    for (ClipEncoderLayer& layer : encoder.layers) {
      if (output_hidden_states) out.hidden_states.push_back(hidden);
      const auto run = [&layer, mask](const Tensor& x) { return layer(x, mask); };
      hidden = run_block(layer, run, hidden);
    }
    if (output_hidden_states) out.hidden_states.push_back(hidden);
    out.last_hidden_state = final_layer_norm(hidden);
    out.pooled = pooled_output(out.last_hidden_state, input_ids);  // (N, C)
    return out;
  }

  // The state of the token that ends the text: the first with the right number, or in old configurations the highest.
  Tensor pooled_output(const Tensor& states, const Tensor& input_ids) const {
    const Tensor rows = arange(tape(), states.size(0));
    Tensor marks = nondiff("_to_copy", input_ids, DType::int32);  // (N, T)
    if (config.eos_token_id != kWrongEos) {
      marks = compare_scalar("eq", marks);
      marks = nondiff("_to_copy", marks, DType::int32);
    }
    const Tensor last = filled(tape(), "argmax", {states.size(0)}, DType::int64);
    marks.reset();
    return index(states, {rows, last});
  }

  Dims result_sizes(int64_t samples, int64_t tokens) const override { return {samples, tokens, config.hidden_size}; }
  bool gives_hidden_states() const override { return true; }
  int64_t usual_tokens() const override { return config.max_position_embeddings; }

  ClipTextConfig config;
  ClipTextEmbeddings embeddings;
  ClipEncoder encoder;
  LayerNorm final_layer_norm;
};

struct ClipTextModelWithProjection : TextEncoder {
  ClipTextModelWithProjection(Module& parent, std::string_view name, const Config& c)
      : TextEncoder(parent, name),
        text_model(*this, "text_model", c),
        text_projection(*this, "text_projection", text_model.config.hidden_size, text_model.config.projection_dim, false) {}

  TextStates encode(const Tensor& input_ids, bool output_hidden_states) override {
    Forward here(*this);
    TextStates out = text_model.encode(input_ids, output_hidden_states);
    const Tensor pooled_output = out.pooled;
    out.pooled = text_projection(pooled_output);  // (N, projection_dim)
    return out;
  }

  Dims result_sizes(int64_t samples, int64_t) const override { return {samples, text_model.config.projection_dim}; }
  Tensor result(const TextStates& states) const override { return states.pooled; }
  bool gives_hidden_states() const override { return true; }
  int64_t usual_tokens() const override { return text_model.usual_tokens(); }

  ClipTextModel text_model;
  Linear text_projection;
};

}  // namespace

std::unique_ptr<TextEncoder> make_clip_text_model(Module& parent, std::string_view name, const Config& config) {
  return std::make_unique<ClipTextModel>(parent, name, config);
}

std::unique_ptr<TextEncoder> make_clip_text_model_with_projection(Module& parent, std::string_view name, const Config& config) {
  return std::make_unique<ClipTextModelWithProjection>(parent, name, config);
}

std::unique_ptr<Model> make_clip_text(Build& build, const Config& config) {
  return make_text_encoder_training(build, config, make_clip_text_model);
}

std::unique_ptr<Model> make_clip_text_projection(Build& build, const Config& config) {
  return make_text_encoder_training(build, config, make_clip_text_model_with_projection);
}

}  // namespace plimsoll
