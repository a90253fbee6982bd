// transformers.models.llava: LlavaForConditionalGeneration with CLIP's vision model and Llama. A sample is `seq` tokens, among them those
// of its `images` (one unless the configuration says otherwise).
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "model/decoder/llama.h"
#include "model/family.h"
#include "model/vision/clip_vision.h"
#include "nn/decoder_stack.h"
#include "ops/index.h"
#include "ops/pointwise.h"
#include "ops/reduce.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

void require_type(const Config& c, const char* type) {
  if (const std::string found = c.text({"model_type"}, type); found != type)
    throw Error(fmt::format("[{}] model_type {} is not simulated within llava", c.source(), found), fmt::format("known: {}", type));
}

// The defaults of LlavaConfig are not those of CLIP's.
Config vision_config_of(const Config& c) {
  Config inner = inner_config(c, "vision_config");
  require_type(inner, "clip_vision_model");
  if (c.find({"vision_config"})) return inner;
  return Config(inner.source(), nlohmann::json{{"intermediate_size", 4096},
                                               {"hidden_size", 1024},
                                               {"patch_size", 14},
                                               {"image_size", 336},
                                               {"num_hidden_layers", 24},
                                               {"num_attention_heads", 16}});
}

DecoderConfig text_config_of(const Config& outer) {
  const Config c = inner_config(outer, "text_config");
  require_type(c, "llama");
  DecoderConfig d = llama_config(c);
  d.tie_word_embeddings = d.tie_word_embeddings || outer.flag({"tie_word_embeddings"}, false);
  return d;
}

// vision_feature_layer: one number or several, from the end where it is negative.
std::vector<int64_t> feature_layers(const Config& c, int64_t states) {
  const nlohmann::json* value = c.find({"vision_feature_layer"});
  const nlohmann::json list = !value ? nlohmann::json{-2} : value->is_array() ? *value : nlohmann::json{*value};
  std::vector<int64_t> layers;
  for (const nlohmann::json& layer : list) {
    if (!layer.is_number_integer() || layer.get<int64_t>() < -states || layer.get<int64_t>() >= states)
      throw Error(fmt::format("[{}] vision_feature_layer {} is none of the {} states of the vision model", c.source(), dump(layer), states),
                  "the default is -2: what the last layer gets");
    layers.push_back((layer.get<int64_t>() + states) % states);
  }
  if (layers.empty()) throw Error(fmt::format("[{}] vision_feature_layer is empty", c.source()), "the default is -2");
  return layers;
}

// Its tokens are embeddings already.
struct LlavaLanguageModel : Decoder {
  using Decoder::Decoder;
  Tensor embed(const Tensor& inputs_embeds) const override { return inputs_embeds; }
};

struct LlavaProjector : Module {
  LlavaProjector(Module& parent, std::string_view name, const Config& c, int64_t in, int64_t out)
      : Module(parent, name),
        act(c.text({"projector_hidden_act"}, "gelu")),
        linear_1(*this, "linear_1", in, out, c.flag({"multimodal_projector_bias"}, true)),
        linear_2(*this, "linear_2", out, out, c.flag({"multimodal_projector_bias"}, true)) {}

  Tensor operator()(const Tensor& image_features) const {
    Forward here(*this);
    Tensor hidden = linear_1(image_features);  // (N, patches, C)
    hidden = activation(act, hidden);
    hidden = linear_2(hidden);
    return hidden;
  }

  std::string act;
  Linear linear_1, linear_2;
};

struct LlavaModel : Module {
  LlavaModel(Module& parent, std::string_view name, const Config& c, const DecoderConfig& text)
      : Module(parent, name),
        vision_tower(*this, "vision_tower", vision_config_of(c)),
        layers(feature_layers(c, vision_tower.config.num_hidden_layers + 1)),
        drops_class(drops_class_token(c)),
        multi_modal_projector(*this, "multi_modal_projector", c,
                              checked_mul(vision_tower.config.hidden_size, static_cast<int64_t>(layers.size())), text.hidden_size),
        language_model(*this, "language_model", text) {}

  static bool drops_class_token(const Config& c) {
    const std::string strategy = c.text({"vision_feature_select_strategy"}, "default");
    if (strategy == "default" || strategy == "full") return strategy == "default";
    throw Error(fmt::format("[{}] vision_feature_select_strategy '{}' is not known", c.source(), strategy), "known: default, full");
  }

  int64_t tokens_per_image() const { return vision_tower.config.num_positions() - (drops_class ? 1 : 0); }

  // (N, tokens, C)
  Tensor get_image_features(const Tensor& pixel_values, Tensors& image_outputs) {
    VisionStates states = vision_tower(pixel_values, &image_outputs);
    Tensors selected;
    for (const int64_t layer : layers) {
      const Tensor& state = image_outputs[static_cast<size_t>(layer)];
      selected.push_back(drops_class ? slice(state, 1, 1, state.size(1)) : state);
    }
    const Tensor selected_image_feature = selected.size() == 1 ? selected[0] : cat(selected, -1);
    image_outputs.push_back(states.last_hidden_state);
    image_outputs.push_back(states.pooled);
    return multi_modal_projector(selected_image_feature);
  }

  struct Outputs {
    Tensor last_hidden_state;    // (B, T, C)
    Tensor image_hidden_states;  // (tokens of all images, C); undefined without images
  };
  Outputs operator()(const Tensor& input_ids, const Tensor& pixel_values) {
    Forward here(*this);
    Outputs out;
    Tensor inputs_embeds = (*language_model.embed_tokens)(input_ids), special_image_mask;  // (B, T, C)
    if (pixel_values) {
      Tensors features;  // one an image
      {
        Tensors image_outputs;
        features = unbind(get_image_features(pixel_values, image_outputs), 0);
      }
      out.image_hidden_states = cat(features, 0);
      out.image_hidden_states = to(out.image_hidden_states, inputs_embeds.dtype());
      features.clear();
      special_image_mask = get_placeholder_mask(input_ids);
      inputs_embeds = masked_scatter(inputs_embeds, special_image_mask, out.image_hidden_states);
    }
    out.last_hidden_state = language_model(inputs_embeds);
    return out;
  }

  // (B, T, 1); there are as many places as features
  Tensor get_placeholder_mask(const Tensor& input_ids) const {
    const Tensor mask = compare_scalar("eq", input_ids);
    const Tensor n_image_tokens = sum(mask);
    compare_scalar("eq", nondiff("mul", n_image_tokens, DType::int64));
    return unsqueeze(mask, -1);
  }

  ClipVisionModel vision_tower;
  std::vector<int64_t> layers;  // whose states are taken
  bool drops_class;
  LlavaProjector multi_modal_projector;
  LlavaLanguageModel language_model;
};

struct LlavaForConditionalGeneration : Model {
  LlavaForConditionalGeneration(Build& build, const Config& c)
      : Model(build),
        config(text_config_of(c)),
        images(c.integer({"images"}, 1)),
        model(*this, "model", c, config),
        lm_head(config.tie_word_embeddings ? std::make_unique<Linear>(*this, "lm_head", model.language_model.embedding(), false)
                                           : std::make_unique<Linear>(*this, "lm_head", config.hidden_size, config.vocab_size, false)) {
    if (images < 0 || images > 1000)
      throw Error(fmt::format("[{}] images {}: a sample has 0 to 1000", c.source(), images), "e.g. --config images=1");
  }

  Tensors make_inputs(int64_t samples, int64_t length, DType dtype) override {
    const PatchConfig& sizes = model.vision_tower.config.patches;
    const int64_t needed = checked_mul(images, model.tokens_per_image());
    if (needed > length)
      throw Error(fmt::format("[llava] {} images of {} tokens do not fit into seq {}", images, model.tokens_per_image(), length),
                  fmt::format("seq counts the tokens of images, too: {} or more", needed));
    Tensors inputs{empty(tape(), {samples, length}, DType::int64), {}};
    if (images > 0) inputs[1] = empty(tape(), {checked_mul(samples, images), sizes.num_channels, sizes.image_h, sizes.image_w}, dtype);
    return inputs;
  }

  std::string sample(int64_t length) const override {
    return fmt::format("{} tokens, {} of {} image{}", length, images * model.tokens_per_image(), images, images == 1 ? "" : "s");
  }

  Output forward(const Batch& batch) override {
    const Tensor &input_ids = batch.own[0], &pixel_values = batch.own[1];
    const LlavaModel::Outputs outputs = model(input_ids, pixel_values);
    const Tensor logits = (*lm_head)(outputs.last_hidden_state);  // (B, T, V)
    Tensors kept{logits};
    if (outputs.image_hidden_states) kept.push_back(outputs.image_hidden_states);
    return {causal_lm_loss(build(), logits, input_ids, true), kept};
  }

  DecoderConfig config;
  int64_t images;  // of a sample
  LlavaModel model;
  std::unique_ptr<Linear> lm_head;
};

std::unique_ptr<Model> make_llava(Build& build, const Config& config) {
  return std::make_unique<LlavaForConditionalGeneration>(build, config);
}

}  // namespace

const Family& llava_family() {
  static const Family kFamily{
      .name = "llava",
      .models = {{"llava", {"LlavaForConditionalGeneration"}, InputKind::own, 2048, make_llava}},
      .presets = {{"llava-1.5-7b", R"({"text_config":{"vocab_size":32064,"max_position_embeddings":4096}})", 2048}},
  };
  return kFamily;
}

}  // namespace plimsoll
