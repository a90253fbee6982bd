// transformers.models.clip: CLIPTextModel and CLIPTextModelWithProjection.
#include "model/encoder/clip_text.h"

#include "model/family.h"
#include "nn/clip_encoder.h"
#include "nn/masking.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

constexpr int64_t kWrongEos = 2;  // of old configurations: the highest token ends the text

struct ClipTextModelConfig : ClipTextConfig {
  explicit ClipTextModelConfig(const Config& c)
      : ClipTextConfig(c), projection_dim(c.size({"projection_dim"}, 512)), eos_token_id(c.integer({"eos_token_id"}, 49407)) {}
  int64_t projection_dim, eos_token_id;
};

struct ClipTextModel : TextEncoder {
  ClipTextModel(Module& parent, std::string_view name, const Config& c) : TextEncoder(parent, name), config(c) {}

  TextStates encode(const Tensor& input_ids, bool output_hidden_states) override {
    Forward here(*this);
    const Tensor hidden = embeddings(input_ids);  // (N, T, C)
    MaskArgs args;
    args.batch = input_ids.size(0);
    args.queries = args.keys = input_ids.size(1);
    args.dtype = hidden.dtype();
    const Tensor mask = create_causal_mask(build(), args);
    TextStates out;
    const Tensor states = encoder(hidden, mask, output_hidden_states ? &out.hidden_states : nullptr);
    out.last_hidden_state = final_layer_norm(states);
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

  ClipTextModelConfig config;
  ClipTextEmbeddings embeddings{*this, "embeddings", config};
  ClipEncoder encoder{*this, "encoder", config};
  LayerNorm final_layer_norm{*this, "final_layer_norm", config.hidden_size};
};

struct ClipTextModelWithProjection : TextEncoder {
  ClipTextModelWithProjection(Module& parent, std::string_view name, const Config& c)
      : TextEncoder(parent, name), text_model(*this, "text_model", c) {}

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
  Linear text_projection{*this, "text_projection", text_model.config.hidden_size, text_model.config.projection_dim, false};
};

}  // namespace

std::unique_ptr<TextEncoder> make_clip_text_model(Module& parent, std::string_view name, const Config& config) {
  return std::make_unique<ClipTextModel>(parent, name, config);
}

namespace {

std::unique_ptr<TextEncoder> make_clip_text_model_with_projection(Module& parent, std::string_view name, const Config& config) {
  return std::make_unique<ClipTextModelWithProjection>(parent, name, config);
}

std::unique_ptr<Model> make_clip_text(Build& build, const Config& config) {
  return make_text_encoder_training(build, config, make_clip_text_model);
}

std::unique_ptr<Model> make_clip_text_projection(Build& build, const Config& config) {
  return make_text_encoder_training(build, config, make_clip_text_model_with_projection);
}

}  // namespace

const Family& clip_text_family() {
  static const Family kFamily{
      .name = "clip-text",
      .models = {{"clip-text", {"CLIPTextModel"}, InputKind::own, 77, make_clip_text, make_clip_text_model},
                 {"clip-text-projection",
                  {"CLIPTextModelWithProjection"},
                  InputKind::own,
                  77,
                  make_clip_text_projection,
                  make_clip_text_model_with_projection}},
      .presets =
          {{"clip-vit-l-14-text",
            R"({"hidden_size":768,"intermediate_size":3072,"num_attention_heads":12,"projection_dim":768,"eos_token_id":2})", 77},
           {"clip-vit-l-14-text-projection",
            R"({"hidden_size":768,"intermediate_size":3072,"num_attention_heads":12,"projection_dim":768,"eos_token_id":2})", 77,
            "clip-text-projection"},
           {"openclip-vit-h-14-text",
            R"({"hidden_size":1024,"intermediate_size":4096,"num_hidden_layers":23,"num_attention_heads":16,"hidden_act":"gelu","eos_token_id":2})",
            77},
           {"openclip-bigg-14-text",
            R"({"hidden_size":1280,"intermediate_size":5120,"num_hidden_layers":32,"num_attention_heads":20,"projection_dim":1280,"hidden_act":"gelu","eos_token_id":2})",
            77, "clip-text-projection"}},
  };
  return kFamily;
}

}  // namespace plimsoll
