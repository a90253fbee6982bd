// transformers.models.clip: CLIPModel, trained on pairs of an image and a text of `seq` tokens by its contrastive loss; and the vision
// model that others see through.
#include <fmt/format.h>

#include "model/encoder/clip_text.h"
#include "model/family.h"
#include "model/vision/clip_vision.h"
#include "ops/loss.h"
#include "ops/matmul.h"
#include "ops/pointwise.h"
#include "ops/reduce.h"
#include "ops/reshape.h"

namespace plimsoll {

ClipVisionModel::ClipVisionModel(Module& parent, std::string_view name, const Config& c)
    : Module(parent, name),
      config(c, false),
      embeddings(*this, "embeddings", config),
      pre_layrnorm(*this, "pre_layrnorm", config.hidden_size),
      encoder(*this, "encoder", config),
      post_layernorm(*this, "post_layernorm", config.hidden_size) {}

VisionStates ClipVisionModel::operator()(const Tensor& pixel_values, Tensors* states) {
  Forward here(*this);
  Tensor hidden = embeddings(pixel_values);  // (N, positions, C)
  hidden = pre_layrnorm(hidden);
  VisionStates out;
  out.last_hidden_state = encoder(hidden, {}, states);
  const Tensor first = select(out.last_hidden_state, 1, 0);  // (N, C)
  out.pooled = post_layernorm(first);
  return out;
}

namespace {

// caption_loss and image_loss: which text belongs to which image, and the other way round.
Tensor contrastive_loss(const Tensor& logits) {
  const Tensor pairs = arange(logits.tape(), logits.size(0));
  return cross_entropy(logits, pairs);
}

Tensor image_text_contrastive_loss(const Tensor& similarity) {
  const Tensor caption_loss = contrastive_loss(similarity), image_loss = contrastive_loss(t(similarity));
  return div_scalar(add(caption_loss, image_loss));
}

Tensor vector_norm_of(const Tensor& x) {
  const Tensor square = pow(x, 2), total = sum(square, {-1}, true);
  return pow(total, 0.5);
}

struct ClipModel : Model {
  ClipModel(Build& build, const Config& c)
      : Model(build),
        text_config(inner_config(c, "text_config")),
        logit_scale(parameter("logit_scale", {})),
        text_model(make_clip_text_model(*this, "text_model", text_config)),
        vision_model(*this, "vision_model", inner_config(c, "vision_config")),
        visual_projection(*this, "visual_projection", vision_model.config.hidden_size, c.size({"projection_dim"}, 512), false),
        text_projection(*this, "text_projection", text_model->result_sizes(1, 1)[2], c.size({"projection_dim"}, 512), false) {}

  Tensors make_inputs(int64_t samples, int64_t length, DType dtype) override {
    const PatchConfig& images = vision_model.config.patches;
    return {empty(tape(), {samples, length}, DType::int64),
            empty(tape(), {samples, images.num_channels, images.image_h, images.image_w}, dtype)};
  }

  std::string sample(int64_t length) const override {
    const PatchConfig& images = vision_model.config.patches;
    return fmt::format("an image of {} x {} and {} tokens", images.image_h, images.image_w, length);
  }

  Output forward(const Batch& batch) override {
    const VisionStates vision_outputs = image_features(batch.own[1]);
    const TextStates text_outputs = text_features(batch.own[0]);
    Tensor image_embeds = vision_outputs.pooled, text_embeds = text_outputs.pooled;  // (B, projection)
    image_embeds = div(image_embeds, vector_norm_of(image_embeds));
    text_embeds = div(text_embeds, vector_norm_of(text_embeds));
    Tensor logits_per_text = matmul(text_embeds, t(image_embeds));  // (B, B)
    logits_per_text = mul(logits_per_text, exp(logit_scale));
    return {image_text_contrastive_loss(logits_per_text),
            {logits_per_text, text_embeds, image_embeds, text_outputs.last_hidden_state, text_outputs.pooled,
             vision_outputs.last_hidden_state, vision_outputs.pooled}};
  }

  VisionStates image_features(const Tensor& pixel_values) {
    VisionStates out = vision_model(pixel_values, nullptr);
    const Tensor pooled_output = out.pooled;
    out.pooled = visual_projection(pooled_output);
    return out;
  }

  TextStates text_features(const Tensor& input_ids) {
    TextStates out = text_model->encode(input_ids, false);
    const Tensor pooled_output = out.pooled;
    out.pooled = text_projection(pooled_output);
    return out;
  }

  Config text_config;
  Tensor logit_scale;
  std::unique_ptr<TextEncoder> text_model;
  ClipVisionModel vision_model;
  Linear visual_projection, text_projection;
};

std::unique_ptr<Model> make_clip(Build& build, const Config& config) { return std::make_unique<ClipModel>(build, config); }

}  // namespace

const Family& clip_family() {
  static const Family kFamily{
      .name = "clip",
      .models = {{"clip", {"CLIPModel"}, InputKind::own, 77, make_clip}},
      .presets =
          {{"clip-vit-base-patch32", R"({})", 77},
           {"clip-vit-large-patch14",
            R"({"projection_dim":768,"text_config":{"hidden_size":768,"intermediate_size":3072,"num_attention_heads":12},"vision_config":{"hidden_size":1024,"intermediate_size":4096,"num_hidden_layers":24,"num_attention_heads":16,"patch_size":14}})",
            77}},
  };
  return kFamily;
}

}  // namespace plimsoll
