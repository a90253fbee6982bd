// transformers.models.siglip: SiglipModel, trained on pairs of an image and a text of `seq` tokens: each pair of the batch, right or wrong,
// by itself.
#include <fmt/format.h>

#include "model/family.h"
#include "nn/clip_encoder.h"
#include "nn/masking.h"
#include "nn/multihead_attention.h"
#include "ops/log_sigmoid.h"
#include "ops/matmul.h"
#include "ops/pointwise.h"
#include "ops/reduce.h"
#include "ops/repeat.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

struct SiglipTextConfig : ClipTextConfig {
  explicit SiglipTextConfig(const Config& c)
      : ClipTextConfig(c, {.vocab_size = 32000,
                           .hidden_size = 768,
                           .intermediate_size = 3072,
                           .num_attention_heads = 12,
                           .max_position_embeddings = 64,
                           .hidden_act = "gelu_pytorch_tanh"}),
        projection_size(c.size({"projection_size"}, hidden_size)) {
    causal = false;
    is_siglip = true;
  }
  int64_t projection_size;
};

struct SiglipStates {
  Tensor last_hidden_state, pooled;  // (N, T, C), (N, projection)
};

struct SiglipTextModel : Module {
  SiglipTextModel(Module& parent, std::string_view name, const Config& c) : Module(parent, name), config(c) {}

  SiglipStates operator()(const Tensor& input_ids) {
    Forward here(*this);
    const Tensor hidden = embeddings(input_ids);  // (N, T, C)
    const Tensor mask = create_bidirectional_mask(build(), {hidden.size(0), hidden.size(1), hidden.size(1), hidden.dtype(), {}, {}});
    const Tensor encoder_output = encoder(hidden, mask);
    SiglipStates out;
    out.last_hidden_state = final_layer_norm(encoder_output);
    const Tensor last = select(out.last_hidden_state, 1, -1);  // (N, C)
    out.pooled = head(last);
    return out;
  }

  SiglipTextConfig config;
  ClipTextEmbeddings embeddings{*this, "embeddings", config};
  ClipEncoder encoder{*this, "encoder", config};
  LayerNorm final_layer_norm{*this, "final_layer_norm", config.hidden_size};
  Linear head{*this, "head", config.hidden_size, config.projection_size};
};

// One learned query over all patches.
struct SiglipPoolingHead : Module {
  SiglipPoolingHead(Module& parent, std::string_view name, const ClipVisionConfig& c)
      : Module(parent, name), config(c), probe(parameter("probe", {1, 1, c.hidden_size})) {}

  Tensor operator()(const Tensor& states) const {
    Forward here(*this);
    const Tensor query = repeat(probe, states.size(0));  // (N, 1, C)
    Tensor hidden;                                       // (N, 1, C)
    {
      Tensor weights;
      hidden = attention(query, states, &weights);
    }
    const Tensor residual = hidden;
    hidden = layernorm(hidden);
    hidden = add(residual, mlp(hidden));
    return select(hidden, 1, 0);
  }

  const ClipVisionConfig& config;
  Tensor probe;
  MultiheadAttention attention{*this, "attention", config.hidden_size, config.num_attention_heads, 0.0};
  LayerNorm layernorm{*this, "layernorm", config.hidden_size};
  FeedForward mlp{*this, "mlp", {"fc1", "fc2", config.hidden_size, config.intermediate_size, config.hidden_act}};
};

struct SiglipVisionModel : Module {
  SiglipVisionModel(Module& parent, std::string_view name, const Config& c) : Module(parent, name), config(c, true) {
    if (!c.flag({"vision_use_head"}, true))
      throw Error(fmt::format("[{}] vision_use_head false: texts would have nothing to be compared with", c.source()), "leave it out");
  }

  SiglipStates operator()(const Tensor& pixel_values) {
    Forward here(*this);
    const Tensor hidden = embeddings(pixel_values);  // (N, patches, C)
    const Tensor encoder_output = encoder(hidden, {});
    SiglipStates out;
    out.last_hidden_state = post_layernorm(encoder_output);
    out.pooled = head(out.last_hidden_state);  // (N, C)
    return out;
  }

  ClipVisionConfig config;
  ClipVisionEmbeddings embeddings{*this, "embeddings", config};
  ClipEncoder encoder{*this, "encoder", config};
  LayerNorm post_layernorm{*this, "post_layernorm", config.hidden_size};
  SiglipPoolingHead head{*this, "head", config};
};

struct SiglipModel : Model {
  SiglipModel(Build& build, const Config& c)
      : Model(build),
        logit_scale(parameter("logit_scale", {1})),
        logit_bias(parameter("logit_bias", {1})),
        text_model(*this, "text_model", inner_config(c, "text_config")),
        vision_model(*this, "vision_model", inner_config(c, "vision_config")) {
    if (text_model.config.projection_size != vision_model.config.hidden_size)
      throw Error(fmt::format("[{}] text_config's projection_size {} is not vision_config's hidden_size {}", c.source(),
                              text_model.config.projection_size, vision_model.config.hidden_size),
                  "texts and images are compared: make them as wide");
  }

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
    const SiglipStates vision_outputs = vision_model(batch.own[1]), text_outputs = text_model(batch.own[0]);
    Tensor image_embeds = vision_outputs.pooled, text_embeds = text_outputs.pooled;  // (B, C)
    image_embeds = div(image_embeds, vector_norm(image_embeds, {-1}));
    text_embeds = div(text_embeds, vector_norm(text_embeds, {-1}));
    Tensor logits_per_text = matmul(text_embeds, t(image_embeds));  // (B, B)
    logits_per_text = add(mul(logits_per_text, exp(logit_scale)), logit_bias);
    return {pairwise_loss(logits_per_text),
            {logits_per_text, text_embeds, image_embeds, text_outputs.last_hidden_state, text_outputs.pooled,
             vision_outputs.last_hidden_state, vision_outputs.pooled}};
  }

  Tensor pairwise_loss(const Tensor& logits) const {
    const Tensor eye = filled(tape(), "eye", logits.sizes(), DType::float32);
    Tensor m1_diag1;  // 1 for pairs, else -1
    {
      Tensor minus = nondiff("ones_like", logits, logits.dtype());
      minus = nondiff("neg", minus, logits.dtype());
      m1_diag1 = add(minus, nondiff("mul", eye, DType::float32));
    }
    const Tensor loglik = log_sigmoid(mul(m1_diag1, logits));
    const Tensor nll = neg(sum(loglik, {-1}, false));
    return mean(nll, {}, false);
  }

  Tensor logit_scale, logit_bias;
  SiglipTextModel text_model;
  SiglipVisionModel vision_model;
};

std::unique_ptr<Model> make_siglip(Build& build, const Config& config) { return std::make_unique<SiglipModel>(build, config); }

}  // namespace

const Family& siglip_family() {
  static const Family kFamily{
      .name = "siglip",
      .models = {{"siglip", {"SiglipModel"}, InputKind::own, 64, make_siglip}},
      .presets = {{"siglip-base-patch16-224", R"({})", 64}},
  };
  return kFamily;
}

}  // namespace plimsoll
