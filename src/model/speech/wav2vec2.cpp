// transformers.models.wav2vec2 and hubert: ForCTC and ForSequenceClassification. A sample is raw audio, seq its length in samples. Every
// layer is run (layer drop leaves some out), and every label of a transcript counts.
#include <fmt/format.h>

#include <cmath>

#include "job/config_list.h"
#include "model/family.h"
#include "nn/blocks.h"
#include "nn/classification.h"
#include "nn/layers.h"
#include "nn/masking.h"
#include "nn/self_attention.h"
#include "nn/transformer.h"
#include "nn/vision.h"
#include "ops/conv.h"
#include "ops/index.h"
#include "ops/loss.h"
#include "ops/norm.h"
#include "ops/pointwise.h"
#include "ops/reduce.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

struct SpeechConfig {
  SpeechConfig(const Config& c, bool is_hubert)
      : is_hubert(is_hubert),
        vocab_size(c.size({"vocab_size"}, 32)),
        hidden_size(c.size({"hidden_size"}, 768)),
        num_hidden_layers(c.size({"num_hidden_layers"}, 12)),
        num_attention_heads(c.size({"num_attention_heads"}, 12)),
        intermediate_size(c.size({"intermediate_size"}, 3072)),
        num_conv_pos_embeddings(c.size({"num_conv_pos_embeddings"}, 128)),
        num_conv_pos_embedding_groups(c.size({"num_conv_pos_embedding_groups"}, 16)),
        hidden_dropout(probability(c, "hidden_dropout", 0.1)),
        activation_dropout(probability(c, "activation_dropout", 0.1)),
        attention_dropout(probability(c, "attention_dropout", 0.1)),
        feat_proj_dropout(probability(c, "feat_proj_dropout", 0.0)),
        final_dropout(probability(c, "final_dropout", 0.1)),
        hidden_act(c.text({"hidden_act"}, "gelu")),
        feat_extract_activation(c.text({"feat_extract_activation"}, "gelu")),
        conv_dim(size_list(c, "conv_dim", std::vector<int64_t>(7, 512))),
        conv_stride(size_list(c, "conv_stride", {5, 2, 2, 2, 2, 2, 2})),
        conv_kernel(size_list(c, "conv_kernel", {10, 3, 3, 3, 3, 2, 2})),
        conv_bias(c.flag({"conv_bias"}, false)),
        do_stable_layer_norm(c.flag({"do_stable_layer_norm"}, false)),
        layer_norms(c.text({"feat_extract_norm"}, "group") == "layer"),
        projects_norm(!is_hubert || c.flag({"feat_proj_layer_norm"}, true)),
        freeze_feature_encoder(c.flag({"freeze_feature_encoder"}, false)),
        apply_spec_augment(c.flag({"apply_spec_augment"}, true)),
        mask_time_prob(probability(c, "mask_time_prob", 0.05)),
        mask_feature_prob(probability(c, "mask_feature_prob", 0.0)),
        mask_time_length(c.size({"mask_time_length"}, 10)),
        mask_time_min_masks(c.integer({"mask_time_min_masks"}, 2)),
        target_length(c.find({"target_length"}) ? c.size({"target_length"}, 1) : 0),
        mean_loss(c.text({"ctc_loss_reduction"}, "sum") == "mean"),
        ctc_zero_infinity(c.flag({"ctc_zero_infinity"}, false)) {
    c.require_divides("num_attention_heads", num_attention_heads, "hidden_size", hidden_size);
    c.require_divides("num_conv_pos_embedding_groups", num_conv_pos_embedding_groups, "hidden_size", hidden_size);
    if (conv_dim.empty() || conv_dim.size() != conv_stride.size() || conv_dim.size() != conv_kernel.size())
      throw Error(fmt::format("[{}] conv_dim, conv_stride and conv_kernel have {}, {} and {} numbers", c.source(), conv_dim.size(),
                              conv_stride.size(), conv_kernel.size()),
                  "give each of them one number a layer");
    require_one_of(c, "feat_extract_norm", "group", "layer");
    require_one_of(c, "ctc_loss_reduction", "sum", "mean");
    for (const char* key : {"add_adapter", "use_weighted_layer_sum", "conv_pos_batch_norm"})
      if (c.flag({key}, false))
        throw Error(fmt::format("[{}] {} true is not simulated", c.source(), key), fmt::format("leave {} out", key));
    if (c.find({"adapter_attn_dim"})) throw Error(fmt::format("[{}] adapter_attn_dim is not simulated", c.source()), "leave it out");
    if (mask_feature_prob > 0 && apply_spec_augment)
      throw Error(fmt::format("[{}] mask_feature_prob {} is not simulated", c.source(), mask_feature_prob),
                  "leave it out: the default is 0");
    reject_captured_outputs(c);
  }

  static void require_one_of(const Config& c, const char* key, const char* first, const char* second) {
    const std::string text = c.text({key}, first);
    if (text != first && text != second)
      throw Error(fmt::format("[{}] {} '{}' is not known", c.source(), key, text), fmt::format("known: {}, {}", first, second));
  }

  bool is_hubert;
  int64_t vocab_size, hidden_size, num_hidden_layers, num_attention_heads, intermediate_size, num_conv_pos_embeddings,
      num_conv_pos_embedding_groups;
  double hidden_dropout, activation_dropout, attention_dropout, feat_proj_dropout, final_dropout;
  std::string hidden_act, feat_extract_activation;
  std::vector<int64_t> conv_dim, conv_stride, conv_kernel;
  bool conv_bias, do_stable_layer_norm, layer_norms, projects_norm;
  bool freeze_feature_encoder;  // the model's method of that name was called, as for fine-tuning
  bool apply_spec_augment;
  double mask_time_prob, mask_feature_prob;
  int64_t mask_time_length, mask_time_min_masks;
  int64_t target_length;  // labels a transcript; 0: one in 1000 samples, 16 a second
  bool mean_loss, ctc_zero_infinity;
};

enum class FeatureNorm : uint8_t { none, group, layer };

// One of the convolutions over the audio: Wav2Vec2NoLayerNormConvLayer, Wav2Vec2GroupNormConvLayer, Wav2Vec2LayerNormConvLayer.
struct ConvLayer : Module {
  ConvLayer(Module& parent, std::string_view name, const SpeechConfig& c, size_t i)
      : Module(parent, name),
        norm(c.layer_norms ? FeatureNorm::layer
             : i == 0      ? FeatureNorm::group
                           : FeatureNorm::none),
        act(c.feat_extract_activation),
        stride(c.conv_stride[i]),
        conv(*this, "conv", c.conv_dim[i], i == 0 ? 1 : c.conv_dim[i - 1], c.conv_kernel[i], c.conv_bias) {
    if (norm != FeatureNorm::none) layer_norm = std::make_unique<Affine>(*this, "layer_norm", c.conv_dim[i]);
  }

  struct Conv : Module {
    Conv(Module& parent, std::string_view name, int64_t out, int64_t in, int64_t kernel, bool with_bias)
        : Module(parent, name), weight(parameter("weight", {out, in, kernel})) {
      if (with_bias) bias = parameter("bias", {out});
    }
    Tensor weight, bias;
  };

  // nn.GroupNorm with a group a channel, or nn.LayerNorm over the channels.
  struct Affine : Module {
    Affine(Module& parent, std::string_view name, int64_t width)
        : Module(parent, name), weight(parameter("weight", {width})), bias(parameter("bias", {width})) {}
    Tensor weight, bias;
  };

  Tensor operator()(const Tensor& x) const {
    Forward here(*this);
    Tensor hidden = convolve(x);  // (B, C, T)
    if (norm != FeatureNorm::none) hidden = normalise(hidden);
    return activation(act, hidden);
  }

  Tensor convolve(const Tensor& x) const {
    Forward here(conv);
    return conv1d(x, conv.weight, conv.bias, {.stride = stride});
  }

  Tensor normalise(const Tensor& x) const {
    Forward here(*layer_norm);
    if (norm == FeatureNorm::group) return group_norm(x, x.size(1), layer_norm->weight, layer_norm->bias);
    const Tensor y = plimsoll::layer_norm(transpose(x, -2, -1), 1, layer_norm->weight, layer_norm->bias);  // (B, T, C)
    return transpose(y, -2, -1);
  }

  FeatureNorm norm;
  std::string act;
  int64_t stride;
  Conv conv;
  std::unique_ptr<Affine> layer_norm;
};

struct FeatureEncoder : Module {
  FeatureEncoder(Module& parent, std::string_view name, const SpeechConfig& c)
      : Module(parent, name), requires_grad(!c.freeze_feature_encoder) {
    for (size_t i = 0; i < c.conv_dim.size(); ++i) conv_layers.add(c, i);
    if (!c.freeze_feature_encoder) return;
    for (Parameter* p : parameters()) p->value.body().requires_grad = false;
  }

  // The audio itself collects a gradient in training, which nobody reads.
  Tensor operator()(const Tensor& input_values) {
    Forward here(*this);
    Tensor hidden = unsqueeze(input_values, 1);  // (B, 1, samples)
    if (requires_grad && tape().training && tape().grad_enabled) {
      make_leaf(hidden);
      hidden.body().parameter = nullptr;  // autocast keeps no casts of views
    }
    for (const ConvLayer& layer : conv_layers) {
      auto run = [&layer](const Tensor& x) { return layer(x); };
      hidden = run_block(layer, run, hidden);
    }
    return hidden;  // (B, C, T)
  }

  bool requires_grad;
  ModuleList<ConvLayer> conv_layers{*this, "conv_layers"};
};

struct FeatureProjection : Module {
  FeatureProjection(Module& parent, std::string_view name, const SpeechConfig& c) : Module(parent, name) {
    if (c.projects_norm) layer_norm = std::make_unique<LayerNorm>(*this, "layer_norm", c.conv_dim.back());
    projection = std::make_unique<Linear>(*this, "projection", c.conv_dim.back(), c.hidden_size);
    dropout = std::make_unique<Dropout>(*this, "dropout", c.feat_proj_dropout);
  }

  // Also gives the features it projects: (B, T, C)
  Tensor operator()(const Tensor& x, Tensor* normed) const {
    Forward here(*this);
    *normed = layer_norm ? (*layer_norm)(x) : x;
    return (*dropout)((*projection)(*normed));  // (B, T, hidden)
  }

  std::unique_ptr<LayerNorm> layer_norm;
  std::unique_ptr<Linear> projection;
  std::unique_ptr<Dropout> dropout;
};

// A convolution under torch.nn.utils.parametrizations.weight_norm: its weight is made anew in every forward.
struct PositionalConvEmbedding : Module {
  PositionalConvEmbedding(Module& parent, std::string_view name, const SpeechConfig& c) : Module(parent, name), config(c) {}

  struct Conv : Module {
    Conv(Module& parent, std::string_view name, const SpeechConfig& c)
        : Module(parent, name),
          bias(parameter("bias", {c.hidden_size})),
          original0(parameter("original0", {1, 1, c.num_conv_pos_embeddings})),
          original1(parameter("original1", {c.hidden_size, c.hidden_size / c.num_conv_pos_embedding_groups, c.num_conv_pos_embeddings})) {}
    Tensor bias, original0, original1;
  };

  Tensor operator()(const Tensor& x) const {
    Forward here(*this);
    Tensor hidden = convolve(transpose(x, 1, 2));  // (B, hidden, T + 1)
    if (config.num_conv_pos_embeddings % 2 == 0) hidden = slice(hidden, 2, 0, -1);
    hidden = activation(config.feat_extract_activation, hidden);
    return transpose(hidden, 1, 2);  // (B, T, hidden)
  }

  Tensor convolve(const Tensor& x) const {
    Forward here(conv);
    return conv1d(x, weight_norm(conv.original1, conv.original0), conv.bias,
                  {.padding = config.num_conv_pos_embeddings / 2, .groups = config.num_conv_pos_embedding_groups});
  }

  const SpeechConfig& config;
  Conv conv{*this, "conv", config};
};

struct SpeechFeedForward : Module {
  SpeechFeedForward(Module& parent, std::string_view name, const SpeechConfig& c) : Module(parent, name), config(c), act(c.hidden_act) {}

  Tensor operator()(const Tensor& x) const {
    Forward here(*this);
    Tensor hidden = intermediate_dense(x);  // (B, T, intermediate)
    hidden = activation(act, hidden);
    hidden = intermediate_dropout(hidden);
    hidden = output_dense(hidden);  // (B, T, hidden)
    hidden = output_dropout(hidden);
    return hidden;
  }

  const SpeechConfig& config;
  std::string act;
  Dropout intermediate_dropout{*this, "intermediate_dropout", config.activation_dropout};
  Linear intermediate_dense{*this, "intermediate_dense", config.hidden_size, config.intermediate_size};
  Linear output_dense{*this, "output_dense", config.intermediate_size, config.hidden_size};
  Dropout output_dropout{*this, "output_dropout", config.hidden_dropout};
};

// Norms after attention and feed-forward, or before them (StableLayerNorm).
struct SpeechLayer : Module {
  SpeechLayer(Module& parent, std::string_view name, const SpeechConfig& c)
      : Module(parent, name), config(c), stable(c.do_stable_layer_norm) {}

  Tensor operator()(const Tensor& x, const Tensor& mask) const {
    Forward here(*this);
    Tensor weights;                              // eager attention's weights live until the layer returns
    Tensor hidden = stable ? layer_norm(x) : x;  // (B, T, hidden)
    hidden = run_attention(attention, hidden, &weights, mask);
    hidden = dropout(hidden);
    hidden = add(x, hidden);
    if (stable) {
      const Tensor out = run_part(feed_forward, final_layer_norm(hidden));
      return add(hidden, out);
    }
    hidden = layer_norm(hidden);
    hidden = add(hidden, run_part(feed_forward, hidden));
    return final_layer_norm(hidden);
  }

  const SpeechConfig& config;
  bool stable;
  SelfAttention attention{*this,
                          "attention",
                          {config.hidden_size,
                           config.num_attention_heads,
                           {.mask = {},
                            .dropout = config.attention_dropout,
                            .causal = false,
                            .has_kv_groups = false,
                            .softmax_fp32 = false,
                            .cast_weights = false}}};
  Dropout dropout{*this, "dropout", config.hidden_dropout};
  LayerNorm layer_norm{*this, "layer_norm", config.hidden_size};
  SpeechFeedForward feed_forward{*this, "feed_forward", config};
  LayerNorm final_layer_norm{*this, "final_layer_norm", config.hidden_size};
};

struct SpeechEncoder : Module {
  SpeechEncoder(Module& parent, std::string_view name, const SpeechConfig& c)
      : Module(parent, name), config(c), stable(c.do_stable_layer_norm) {
    for (int64_t i = 0; i < c.num_hidden_layers; ++i) layers.add(c);
  }

  Tensor operator()(const Tensor& x) {
    Forward here(*this);
    MaskArgs args{x.size(0), x.size(1), x.size(1), x.dtype(), {}, {}};
    args.ignores_batch = true;
    const Tensor mask = create_bidirectional_mask(build(), args);
    const Tensor position_embeddings = pos_conv_embed(x);  // (B, T, hidden)
    Tensor hidden = add(x, position_embeddings);
    if (!stable) hidden = layer_norm(hidden);
    hidden = dropout(hidden);
    for (const SpeechLayer& layer : layers) {
      auto run = [&layer, mask](const Tensor& h) { return layer(h, mask); };
      hidden = run_block(layer, run, hidden);
    }
    return stable ? layer_norm(hidden) : hidden;
  }

  const SpeechConfig& config;
  bool stable;
  PositionalConvEmbedding pos_conv_embed{*this, "pos_conv_embed", config};
  LayerNorm layer_norm{*this, "layer_norm", config.hidden_size};
  Dropout dropout{*this, "dropout", config.hidden_dropout};
  ModuleList<SpeechLayer> layers{*this, "layers"};
};

struct SpeechOutput {
  Tensor last_hidden_state;  // (B, T, hidden)
  Tensor extract_features;   // (B, T, C); undefined for hubert, whose output does not hold them
};

struct SpeechModel : Module {
  SpeechModel(Module& parent, std::string_view name, const SpeechConfig& c) : Module(parent, name), config(c) {
    if (c.mask_time_prob > 0 || c.mask_feature_prob > 0) masked_spec_embed = parameter("masked_spec_embed", {c.hidden_size});
    feature_extractor = std::make_unique<FeatureEncoder>(*this, "feature_extractor", c);
    feature_projection = std::make_unique<FeatureProjection>(*this, "feature_projection", c);
    encoder = std::make_unique<SpeechEncoder>(*this, "encoder", c);
  }

  SpeechOutput operator()(const Tensor& input_values) {
    Forward here(*this);
    Tensor features = (*feature_extractor)(input_values);  // (B, C, T)
    features = transpose(features, 1, 2);
    Tensor normed;
    Tensor hidden = (*feature_projection)(features, &normed);  // (B, T, hidden)
    (config.is_hubert ? normed : features).reset();            // wav2vec2 goes on with what was projected, hubert with what was extracted
    if (config.apply_spec_augment && config.mask_time_prob > 0 && tape().training) hidden = mask_times(hidden);
    return {(*encoder)(hidden), normed};
  }

  // SpecAugment: spans of frames become one learned vector. How many is random; here as many as it can be.
  Tensor mask_times(const Tensor& hidden) const {
    const int64_t b = hidden.size(0), frames = hidden.size(1), span = config.mask_time_length;
    if (span > frames)
      throw Error(fmt::format("[wav2vec2] mask_time_length {} is more than the {} frames of a sample", span, frames),
                  "use longer audio, or apply_spec_augment false");
    const double wanted = config.mask_time_prob * static_cast<double>(frames) / static_cast<double>(span) + 1;
    const int64_t spans = std::min(std::max(static_cast<int64_t>(wanted), config.mask_time_min_masks), frames / span);
    const Tensor mask = filled(tape(), "tensor", {b, frames}, DType::bool_);
    return index_put_(hidden, mask, to(masked_spec_embed, hidden.dtype()), checked_mul(b, spans * span));
  }

  const SpeechConfig& config;
  Tensor masked_spec_embed;
  std::unique_ptr<FeatureEncoder> feature_extractor;
  std::unique_ptr<FeatureProjection> feature_projection;
  std::unique_ptr<SpeechEncoder> encoder;
};

struct SpeechNetwork : Model {
  SpeechNetwork(Build& build, const Config& c, bool is_hubert)
      : Model(build), config(c, is_hubert), base(*this, is_hubert ? "hubert" : "wav2vec2", config) {}

  std::string sample(int64_t length) const override { return fmt::format("{} samples of audio", length); }

  SpeechConfig config;
  SpeechModel base;
};

struct ForCTC : SpeechNetwork {
  ForCTC(Build& build, const Config& c, bool is_hubert) : SpeechNetwork(build, c, is_hubert) {}

  Tensors make_inputs(int64_t samples, int64_t length, DType dtype) override {
    const int64_t labels = config.target_length ? config.target_length : std::max<int64_t>(1, length / 1000);
    return {empty(tape(), {samples, length}, dtype), empty(tape(), {samples, labels}, DType::int64)};
  }

  Output forward(const Batch& batch) override {
    const Tensor &audio = batch.own[0], &labels = batch.own[1];
    filled(tape(), "max", {}, DType::int64);  // of the labels: are they below vocab_size?
    const SpeechOutput outputs = base(audio);
    const Tensor hidden = dropout(outputs.last_hidden_state);  // (B, T, hidden)
    const Tensor logits = lm_head(hidden);                     // (B, T, vocab)
    const Tensor attention_mask = filled(tape(), "ones_like", audio.sizes(), DType::int64);
    const Tensor input_lengths = output_lengths(sum(attention_mask, {-1}, false));
    const Tensor labels_mask = compare_scalar("ge", labels);
    const Tensor target_lengths = sum(labels_mask, {-1}, false);
    const Tensor targets = nondiff("clone", view(labels, {-1}), DType::int64);
    const Tensor log_probs = transpose(log_softmax(logits, DType::float32), 0, 1);  // (T, B, vocab)
    Tensor loss = ctc_loss(log_probs, targets, labels.size(1));                     // (B)
    if (config.ctc_zero_infinity) {
      const Tensor infinite = compare_scalar("eq", loss);
      loss = where(infinite, filled(tape(), "zeros", {}, loss.dtype()), loss);
    }
    return {reduced(loss), {logits}};
  }

 private:
  // _get_feat_extract_output_lengths
  Tensor output_lengths(Tensor lengths) const {
    for (size_t i = 0; i < config.conv_dim.size(); ++i) {
      Tensor next = sub_scalar(lengths);
      next = div_scalar(next);
      lengths = add_scalar(next);
    }
    return lengths;
  }

  Tensor reduced(const Tensor& loss) const {
    if (!config.mean_loss) return sum(loss);
    Tensor lengths = filled(tape(), "tensor", {loss.size(0)}, loss.dtype());
    lengths = nondiff("clamp_min", lengths, lengths.dtype());
    return mean(div(loss, lengths), {}, false);
  }

  Dropout dropout{*this, "dropout", config.final_dropout};
  Linear lm_head{*this, "lm_head", config.hidden_size, config.vocab_size};
};

struct ForSequenceClassification : SpeechNetwork {
  ForSequenceClassification(Build& build, const Config& c, bool is_hubert)
      : SpeechNetwork(build, c, is_hubert),
        classes(c),
        projector(*this, "projector", config.hidden_size, c.size({"classifier_proj_size"}, 256)),
        classifier(*this, "classifier", c.size({"classifier_proj_size"}, 256), classes.num_labels) {}

  Tensors make_inputs(int64_t samples, int64_t length, DType dtype) override {
    return {empty(tape(), {samples, length}, dtype), empty(tape(), {samples}, DType::int64)};
  }

  Output forward(const Batch& batch) override {
    const SpeechOutput outputs = base(batch.own[0]);
    const Tensor hidden = projector(outputs.last_hidden_state);  // (B, T, classifier_proj_size)
    const Tensor pooled_output = mean(hidden, {1}, false);
    const Tensor logits = classifier(pooled_output);  // (B, labels)
    return {cross_entropy(logits, batch.own[1]), {logits}};
  }

 private:
  Classification classes;
  Linear projector, classifier;
};

std::unique_ptr<Model> make_wav2vec2(Build& build, const Config& config) { return std::make_unique<ForCTC>(build, config, false); }
std::unique_ptr<Model> make_hubert(Build& build, const Config& config) { return std::make_unique<ForCTC>(build, config, true); }
std::unique_ptr<Model> make_wav2vec2_classifier(Build& build, const Config& config) {
  return std::make_unique<ForSequenceClassification>(build, config, false);
}
std::unique_ptr<Model> make_hubert_classifier(Build& build, const Config& config) {
  return std::make_unique<ForSequenceClassification>(build, config, true);
}

}  // namespace

const Family& hubert_family() {
  static const Family kFamily{
      .name = "hubert",
      .models = {{"hubert", {"HubertForCTC"}, InputKind::own, 160000, make_hubert},
                 {"hubert-classifier", {"HubertForSequenceClassification"}, InputKind::own, 160000, make_hubert_classifier}},
      .presets =
          {{"hubert-base", R"({})", 160000},
           {"hubert-large",
            R"({"hidden_size":1024,"num_hidden_layers":24,"num_attention_heads":16,"intermediate_size":4096,"do_stable_layer_norm":true,"feat_extract_norm":"layer","conv_bias":true})",
            160000}},
  };
  return kFamily;
}

const Family& wav2vec2_family() {
  static const Family kFamily{
      .name = "wav2vec2",
      .models = {{"wav2vec2", {"Wav2Vec2ForCTC"}, InputKind::own, 160000, make_wav2vec2},
                 {"wav2vec2-classifier", {"Wav2Vec2ForSequenceClassification"}, InputKind::own, 160000, make_wav2vec2_classifier}},
      .presets =
          {{"wav2vec2-base", R"({})", 160000},
           {"wav2vec2-large", R"({"hidden_size":1024,"num_hidden_layers":24,"num_attention_heads":16,"intermediate_size":4096})", 160000},
           {"xls-r-300m",
            R"({"hidden_size":1024,"num_hidden_layers":24,"num_attention_heads":16,"intermediate_size":4096,"do_stable_layer_norm":true,"feat_extract_norm":"layer","conv_bias":true,"activation_dropout":0.0,"feat_proj_dropout":0.1,"final_dropout":0.0,"mask_time_prob":0.075})",
            160000},
           {"xls-r-1b",
            R"({"hidden_size":1280,"num_hidden_layers":48,"num_attention_heads":16,"intermediate_size":5120,"do_stable_layer_norm":true,"feat_extract_norm":"layer","conv_bias":true,"activation_dropout":0.0,"feat_proj_dropout":0.1,"final_dropout":0.0,"mask_time_prob":0.075})",
            160000}},
  };
  return kFamily;
}

}  // namespace plimsoll
