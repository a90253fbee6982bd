// The step of the AI Toolkit (extensions_built_in/sd_trainer/SDTrainer.py, train_single_accumulation): a denoiser that is trained, in
// full or through an adapter, and a frozen autoencoder and frozen text encoders beside it. What is cached is not called and not on the
// device: the toolkit moves the autoencoder to the host once latents are cached, and drops text encoders once texts are.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "model/families.h"
#include "model/registry.h"
#include "model/resolve.h"
#include "model/text_encoders.h"
#include "model/toolkit_prompts.h"
#include "nn/autoencoder_kl.h"
#include "nn/causal_autoencoder.h"
#include "nn/denoiser.h"
#include "ops/loss.h"
#include "ops/pointwise.h"
#include "ops/reduce.h"
#include "ops/reshape.h"
#include "util/text.h"

namespace plimsoll {

namespace {

using Json = nlohmann::json;

// A part by the name of a preset or family, alone or as "model" beside what differs from it.
struct Part {
  const ModelEntry* entry = nullptr;
  Config config;
};

Part part_of(const Json& value, const std::string& key) {
  const bool plain = value.is_string();
  if (!plain && !(value.is_object() && value.contains("model") && value["model"].is_string()))
    throw Error(
        fmt::format("[diffusion-trainer] {} is {}, expected a model's name or a mapping with model", key, dump(value).substr(0, 80)),
        R"(e.g. sdxl-vae, or {"model": "sdxl-vae", "layers_per_block": 1})");
  const std::string name = plain ? value.get<std::string>() : value["model"].get<std::string>();
  Part part;
  Json config = Json::object();
  part.entry = find_model(name);
  std::vector<std::string> names;
  for (const Preset& p : presets()) {
    names.emplace_back(p.name);
    if (lower(name) != p.name) continue;
    part.entry = find_model(p.family);
    config = Json::parse(p.config);
  }
  if (!part.entry) throw Error(fmt::format("[diffusion-trainer] {} '{}' is not known", key, name), did_you_mean(name, names));
  if (!plain)
    for (const auto& item : value.items())
      if (item.key() != "model") config[item.key()] = item.value();
  part.config = Config(key + " " + name, config);
  return part;
}

struct TextEncoderFamily {
  const char* name;
  MakeTextEncoder make;
};
constexpr TextEncoderFamily kTextEncoders[]{
    {"clip-text", make_clip_text_model},  {"clip-text-projection", make_clip_text_model_with_projection},
    {"gemma2", make_gemma2_text_model},   {"llama", make_llama_text_model},
    {"qwen2", make_qwen2_text_model},     {"qwen2.5-vl-text", make_qwen2_5_vl_text_model},
    {"t5-encoder", make_t5_encoder_model}};

MakeTextEncoder text_encoder_of(const Part& part) {
  std::vector<std::string> names;
  for (const TextEncoderFamily& f : kTextEncoders) {
    if (part.entry->name == f.name) return f.make;
    names.emplace_back(f.name);
  }
  throw Error("[diffusion-trainer] text_encoders: " + part.entry->name + " is not a text encoder", "families: " + join(names, ", "));
}

struct TrainerConfig {
  explicit TrainerConfig(const Config& c)
      : cache_latents(c.flag({"cache_latents"}, false)),
        cache_text_embeddings(c.flag({"cache_text_embeddings"}, false)),
        unload_text_encoder(c.flag({"unload_text_encoder"}, false)),
        dop(c.flag({"dop", "diff_output_preservation"}, false)),
        flow_matching(c.flag({"flow_matching"}, false)),
        quantize_te(c.flag({"quantize_te"}, false)),
        vae_dtype(dtype_of(c, "vae_dtype")),
        te_dtype(dtype_of(c, "te_dtype")) {
    const std::vector<std::string> known{"denoiser",
                                         "vae",
                                         "text_encoders",
                                         "cache_latents",
                                         "cache_text_embeddings",
                                         "unload_text_encoder",
                                         "dop",
                                         "diff_output_preservation",
                                         "flow_matching",
                                         "quantize_te",
                                         "vae_dtype",
                                         "te_dtype",
                                         "layer_offloading",  // step/offloaded_layers.h reads it
                                         "height",
                                         "width",
                                         "frames",
                                         "text_tokens"};
    for (const auto& item : c.values().items())
      if (std::find(known.begin(), known.end(), item.key()) == known.end())
        throw Error("[diffusion-trainer] " + item.key() + " is not known", did_you_mean(item.key(), known));
    const Json* net = c.find({"denoiser"});
    if (!net) throw Error("[diffusion-trainer] no denoiser was named", "e.g. denoiser: sdxl-unet");
    denoiser = part_of(*net, "denoiser");
    // A picture's size is the step's.
    Json with_canvas = denoiser.config.values();
    for (const char* key : {"height", "width", "frames", "text_tokens"})
      if (const Json* value = c.find({key})) with_canvas[key] = *value;
    denoiser.config = Config(denoiser.config.source(), with_canvas);
    if (const Json* value = c.find({"vae"})) vae = part_of(*value, "vae");
    if (vae && vae->entry->name != "autoencoder-kl" && vae->entry->name != "autoencoder-kl-wan")
      throw Error("[diffusion-trainer] vae: " + vae->entry->name + " is not an autoencoder", "e.g. vae: sdxl-vae");
    if (!vae && !cache_latents) throw Error("[diffusion-trainer] cache_latents: false needs a vae", "e.g. vae: sdxl-vae");
    read_text_encoders(c);
  }

  void read_text_encoders(const Config& c) {
    const Json* list = c.find({"text_encoders"});
    if (list && !list->is_array())
      throw Error("[diffusion-trainer] text_encoders is " + dump(*list).substr(0, 80) + ", expected a list",
                  "e.g. [clip-vit-l-14-text, openclip-bigg-14-text]");
    if (list)
      for (const Json& value : *list) text_encoders.push_back(part_of(value, "text_encoders"));
    for (const Part& part : text_encoders) text_encoder_of(part);
    prompts();
    if (text_encoders.empty() && !encodes_nothing())
      throw Error("[diffusion-trainer] no text_encoders are named", "name them, or set cache_text_embeddings");
  }

  const PromptEncoding& prompts() const {
    std::vector<std::string> families;
    for (const Part& part : text_encoders) families.push_back(part.entry->name);
    return prompt_encoding_of(denoiser.entry->name, families);
  }

  bool encodes_nothing() const { return cache_text_embeddings || unload_text_encoder; }

  static std::optional<DType> dtype_of(const Config& c, const char* key) {
    const std::string text = c.text({key}, "");
    if (text.empty()) return std::nullopt;
    if (text == "bf16") return DType::bfloat16;
    if (text == "fp16") return DType::float16;
    if (text == "fp32") return DType::float32;
    throw Error(std::string("[diffusion-trainer] ") + key + " '" + text + "' is not known", did_you_mean(text, {"bf16", "fp16", "fp32"}));
  }

  bool cache_latents, cache_text_embeddings, unload_text_encoder, dop, flow_matching, quantize_te;
  std::optional<DType> vae_dtype, te_dtype;
  Part denoiser;
  std::optional<Part> vae;
  std::vector<Part> text_encoders;
};

// While it lives, modules are built frozen, in another type and without what the job's tuning does to the denoiser.
class FrozenBuild {
 public:
  FrozenBuild(Build& build, const std::string& part, std::optional<DType> dtype, bool quantize = false)
      : build_(build), dtype_(build.dtype), tuning_(std::move(build.tuning)) {
    TuningSettings frozen;
    frozen.frozen = {part};
    if (quantize) frozen.quantization = parse_quantization("qfloat8");
    build.tuning = Tuning(frozen, part);
    build.dtype = dtype.value_or(build.load_dtype);
  }
  ~FrozenBuild() {
    build_.tuning = std::move(tuning_);
    build_.dtype = dtype_;
  }

 private:
  Build& build_;
  DType dtype_;
  Tuning tuning_;
};

// What makes latents of images, scaled as the denoiser knows them.
class ImageEncoder {
 public:
  virtual ~ImageEncoder() = default;
  virtual Tensor encode(const Tensor& images) = 0;  // (N, C, H, W) -> (N, latent channels, h, w)
  virtual DType dtype() const = 0;
  int64_t channels = 3, latent_channels = 4, scale = 8;
};

class ImageAutoencoder : public ImageEncoder {
 public:
  ImageAutoencoder(Module& parent, const Config& config) : vae_(parent, "vae", config) {
    channels = vae_.config.in_channels;
    latent_channels = vae_.config.latent_channels;
    scale = vae_.config.scale();
  }
  DType dtype() const override { return vae_.encoder.conv_in.weight.dtype(); }
  Tensor encode(const Tensor& images) override {
    const Tensor latents = vae_.encode(images).sample();
    const Tensor shifted = sub_scalar(latents);
    return mul_scalar(shifted);
  }

 private:
  AutoencoderKL vae_;
};

// An autoencoder of videos sees one frame; mean and deviation of each channel are brought to the device every time.
class VideoAutoencoder : public ImageEncoder {
 public:
  VideoAutoencoder(Module& parent, const Config& config) : vae_(parent, "vae", config) {
    channels = vae_.config.in_channels;
    latent_channels = vae_.config.z_dim;
    scale = vae_.config.scale();
  }
  DType dtype() const override { return vae_.quant_conv.weight.dtype(); }
  Tensor encode(const Tensor& images) override {
    const Tensor latents = vae_.encode(unsqueeze(images, 2)).sample();  // (N, z, 1, h, w)
    const Dims by_channel{1, latent_channels, 1, 1, 1};
    const Tensor mean = filled(latents.tape(), "_to_copy", by_channel, latents.dtype());
    Tensor deviation = filled(latents.tape(), "_to_copy", by_channel, latents.dtype());
    for (const char* op : {"reciprocal", "mul"}) deviation = nondiff(op, deviation, latents.dtype());
    const Tensor shifted = sub(latents, mean);
    return squeeze(mul(shifted, deviation), 2);
  }

 private:
  CausalAutoencoder vae_;
};

// eval() under torch.no_grad()
class Inference {
 public:
  explicit Inference(Tape& tape) : tape_(tape), no_grad_(tape, false) { tape.training = false; }
  ~Inference() { tape_.training = true; }

 private:
  Tape& tape_;
  GradGuard no_grad_;
};

// Latents of an image are packed, 2 x 2 to a token, where a denoiser takes tokens.
Tensor packed(const Tensor& x) {
  const int64_t n = x.size(0), c = x.size(1), h = x.size(2) / 2, w = x.size(3) / 2;
  const Tensor patches = permute(reshape(x, {n, c, h, 2, w, 2}), {0, 2, 4, 1, 3, 5});
  return reshape(patches, {n, h * w, 4 * c});
}

Tensor unpacked(const Tensor& tokens, const Dims& sizes) {
  const int64_t n = sizes[0], c = sizes[1], h = sizes[2] / 2, w = sizes[3] / 2;
  const Tensor patches = permute(reshape(tokens, {n, h, w, c, 2, 2}), {0, 3, 1, 4, 2, 5});
  return reshape(patches, sizes);
}

class ToolkitStep : public DenoiserStep {
 public:
  ToolkitStep(DenoiserModel& model, const TrainerConfig& c) : config_(c), model_(model), net_(model.net()), prompts_(c.prompts()) {
    Build& build = model.build();
    build.input_require_grads = false;
    if (c.vae && !c.cache_latents) {
      const FrozenBuild frozen(build, "vae", c.vae_dtype);
      if (c.vae->entry->name == "autoencoder-kl")
        vae_ = std::make_unique<ImageAutoencoder>(model, c.vae->config);
      else
        vae_ = std::make_unique<VideoAutoencoder>(model, c.vae->config);
    }
    if (c.encodes_nothing()) return;
    for (const Part& part : c.text_encoders) {
      const std::string name = text_encoders_.empty() ? "text_encoder" : fmt::format("text_encoder_{}", text_encoders_.size() + 1);
      const FrozenBuild frozen(build, name, c.te_dtype, c.quantize_te && !part.entry->name.starts_with("clip"));  // CLIP's never is
      text_encoders_.push_back(text_encoder_of(part)(model, name, part.config));
    }
  }

  // Pictures or latents, timesteps, and tokens or what was made of them (with DOP a second time, for the class alone).
  Tensors make_inputs(int64_t samples, const Canvas& canvas, DType dtype) override {
    Tape& tape = model_.tape();
    canvas_ = canvas;
    dtype_ = dtype;
    samples_ = samples;
    conditions_ = net_.conditions(samples, canvas, dtype);
    latent_sizes_ = latent_sizes();
    Tensors inputs{empty(tape, vae_ ? Dims{samples, vae_->channels, canvas.height, canvas.width} : latent_sizes_, dtype),
                   empty(tape, {samples}, config_.flow_matching ? DType::float32 : DType::int64)};
    if (vae_) check_latents();
    for (int pass = 0; pass < (config_.dop ? 2 : 1); ++pass) {
      for (size_t i = 0; i < text_encoders_.size(); ++i)
        inputs.push_back(empty(tape, {samples, tokens_read(prompts_, text_encoders_, i, conditions_[0].sizes[1])}, DType::int64));
      if (!text_encoders_.empty()) continue;
      for (const Condition& c : conditions_)
        if (c.kind == Condition::Kind::text) inputs.push_back(empty(tape, c.sizes, is_floating(c.dtype) ? c.dtype : DType::int64));
    }
    model_.build().adapter_multiplier = empty(tape, {samples}, DType::float32);
    return inputs;
  }

  Output forward(const Tensors& inputs) override {
    Tape& tape = model_.tape();
    const Tensor& timesteps = inputs[1];
    Tensor latents, noise, noisy_latents;  // (N, C, h, w)
    {
      GradGuard no_grad(tape, false);
      latents = vae_ ? encode_images(inputs[0]) : inputs[0];
      noise = filled(tape, "randn", latents.sizes(), dtype_);
      noise = mul_scalar(noise);
      latents = mul_scalar(latents);
      noisy_latents = add_noise(latents, noise, timesteps);
    }
    const Tensor ones = filled(tape, "ones", {samples_, 1, 1, 1}, dtype_), mask = filled(tape, "ones", {samples_, 1, 1, 1}, dtype_);
    const Tensors texts = encode_texts(inputs, 0), class_texts = config_.dop ? encode_texts(inputs, 1) : Tensors{};
    Tensor prior;
    if (config_.dop) prior = prior_prediction(noisy_latents, timesteps, class_texts);
    const Tensor prediction = predict(noisy_latents, timesteps, texts);
    Tensor loss = prediction_loss(prediction, noise, latents, mask), preserved;
    if (config_.dop) {
      preserved = predict(noisy_latents, timesteps, class_texts);
      Tensor preservation = mse_loss(preserved, prior);
      preservation = mul_scalar(preservation);
      loss = add(loss, preservation);
    }
    loss = mul(loss, mean_of(ones));
    Tensors kept{latents, noise, noisy_latents, prediction, prior, preserved, ones, mask};
    kept.insert(kept.end(), texts.begin(), texts.end());
    kept.insert(kept.end(), class_texts.begin(), class_texts.end());
    kept.erase(std::remove_if(kept.begin(), kept.end(), [](const Tensor& t) { return !t; }), kept.end());
    return {loss, kept};
  }

 private:
  bool packs() const { return net_.latent_sizes(samples_, canvas_).size() == 3; }

  // Before they are packed; what else a denoiser is shown, a reference or a control image, is no part of them.
  Dims latent_sizes() const {
    const Dims target = net_.target_sizes(samples_, canvas_);
    if (!packs()) return net_.latent_sizes(samples_, canvas_);
    return {samples_, target[2] / 4, canvas_.height / kPixelsPerLatent, canvas_.width / kPixelsPerLatent};
  }

  void check_latents() const {
    const Dims given{samples_, vae_->latent_channels, canvas_.height / vae_->scale, canvas_.width / vae_->scale};
    if (given == latent_sizes_) return;
    throw Error(
        fmt::format("[diffusion-trainer] the vae's latents {} are not the denoiser's {}", to_string(given), to_string(latent_sizes_)),
        "name the autoencoder that belongs to the denoiser, or cache_latents");
  }

  static Tensor mean_of(const Tensor& x) {
    Dims all;
    for (int i = 0; i < x.dim(); ++i) all.push_back(i);
    return mean(x, all, false);
  }

  // toolkit/stable_diffusion_model.py, encode_images
  Tensor encode_images(const Tensor& imgs) {
    const Inference mode(model_.tape());
    const DType dtype = vae_->dtype();
    Tensors image_list = unbind(imgs, 0);
    for (Tensor& image : image_list) image = to(image, dtype);
    const Tensor images = stack(image_list, 0);  // (N, 3, H, W)
    return vae_->encode(images);
  }

  // add_noise: sample by sample. Times of flow matching are fp32, and so are the sums.
  Tensor add_noise(const Tensor& latents, const Tensor& noise, const Tensor& timesteps) const {
    Tensors noisy;
    const Tensors samples = split(latents, 1, 0), noises = split(noise, 1, 0), times = split(timesteps, 1, 0);
    Tensor t;
    for (size_t i = 0; i < samples.size(); ++i) {
      if (config_.flow_matching) t = div_scalar(times[i]);
      const Tensor kept = t ? mul(rsub_scalar(t), samples[i]) : mul_scalar(samples[i]);
      const Tensor added = t ? mul(t, noises[i]) : mul_scalar(noises[i]);
      noisy.push_back(add(kept, added));
    }
    return cat(noisy, 0);
  }

  // What the encoders say of the texts, or what was cached of it.
  Tensors encode_texts(const Tensors& inputs, size_t pass) {
    const size_t each = (inputs.size() - 2) / (config_.dop ? 2 : 1);
    const auto first = inputs.begin() + 2 + static_cast<std::ptrdiff_t>(pass * each);
    const Tensors own(first, first + static_cast<std::ptrdiff_t>(each));
    Tensors texts;
    GradGuard no_grad(model_.tape(), false);
    if (text_encoders_.empty()) {  // clone().detach() of what the loader gave
      for (const Tensor& t : own) texts.push_back(clone(t));
      return texts;
    }
    const Inference mode(model_.tape());
    const Tensors encoded = prompts_.encode(text_encoders_, own);
    for (const Tensor& t : encoded) texts.push_back(is_floating(t.dtype()) ? to(t, dtype_) : t);
    check_texts(texts);
    return texts;
  }

  void check_texts(const Tensors& texts) const {
    size_t next = 0;
    for (const Condition& c : conditions_) {
      if (c.kind != Condition::Kind::text || next == texts.size()) continue;
      const Tensor& given = texts[next++];
      if (given.sizes() == c.sizes) continue;
      throw Error(
          fmt::format("[diffusion-trainer] the text encoders give {}, the denoiser takes {}", to_string(given.sizes()), to_string(c.sizes)),
          "name the encoders that belong to the denoiser, or cache_text_embeddings");
    }
  }

  // toolkit/stable_diffusion_model.py, predict_noise
  Tensor predict(const Tensor& noisy, const Tensor& timesteps, const Tensors& texts) {
    const Tensor latents = to(noisy, dtype_);
    Tensors conditions;
    Tensor input, tokens;  // (N, C, h, w), (N, S, 4 C)
    {
      GradGuard no_grad(model_.tape(), false);
      input = cat(split(latents, 1, 0), 0);  // scale_model_input
      if (packs()) tokens = shown(packed(input));
      conditions = with_own_conditions(texts);
    }
    const Tensors times = tokens ? Tensors{div_scalar(timesteps)} : net_.toolkit_times(timesteps, dtype_);
    Tensor prediction = net_.predict(tokens ? tokens : input, times[0], conditions);
    if (tokens) prediction = unpacked(prediction, latent_sizes_);
    if (!net_.predicts_noise()) prediction = neg(prediction);
    return prediction;
  }

  // The tokens of the latents with those of other images.
  Tensor shown(const Tensor& tokens) const {
    const Dims sizes = net_.latent_sizes(samples_, canvas_);
    return tokens.sizes() == sizes ? tokens : filled(tokens.tape(), "cat", sizes, tokens.dtype());
  }

  // Positions are made for every sample, of which one is used; sizes for one, then for all; guidance for one.
  Tensors with_own_conditions(const Tensors& texts) const {
    Tape& tape = model_.tape();
    Tensors all;
    size_t next_text = 0;
    for (const Condition& c : conditions_) {
      Dims sizes = c.sizes;
      switch (c.kind) {
        case Condition::Kind::text: all.push_back(next_text < texts.size() ? texts[next_text++] : empty(tape, c.sizes, c.dtype)); break;
        case Condition::Kind::positions:
          sizes.insert(0, samples_);
          all.push_back(select(empty(tape, sizes, DType::float32), 0, 0));
          break;
        case Condition::Kind::sizes:
          sizes[0] = 1;
          all.push_back(cat(Tensors(static_cast<size_t>(samples_), empty(tape, sizes, c.dtype)), 0));
          break;
        case Condition::Kind::guidance: all.push_back(expand(empty(tape, {1}, c.dtype), c.sizes)); break;
      }
    }
    return all;
  }

  // SDTrainer.get_prior_prediction: the denoiser without its adapter
  Tensor prior_prediction(const Tensor& noisy, const Tensor& timesteps, const Tensors& texts) {
    const Inference mode(model_.tape());
    Tensors embeds;
    for (const Tensor& t : texts) embeds.push_back(clone(t));
    model_.build().adapters_active = false;
    Tensor out = predict(noisy, timesteps, embeds);
    model_.build().adapters_active = true;
    return out;
  }

  // SDTrainer.calculate_loss: by element, times a mask of ones and one number a sample
  Tensor prediction_loss(const Tensor& prediction, const Tensor& noise, const Tensor& latents, const Tensor& mask) {
    const Tensor by_sample = filled(model_.tape(), "_to_copy", {samples_}, DType::float32);
    const Tensor target = config_.flow_matching ? sub(noise, latents) : noise;
    Tensor loss = mse_loss_by_element(to(prediction, DType::float32), to(target, DType::float32));  // like the prediction
    loss = mul_scalar(loss);
    loss = mul(loss, view(mask, mask_sizes(loss)));
    Dims but_first;
    for (int i = 1; i < loss.dim(); ++i) but_first.push_back(i);
    loss = mean(loss, but_first, false);  // (N)
    loss = mul(loss, by_sample);
    loss = mean_of(loss);
    return add_scalar(loss);
  }

  static Dims mask_sizes(const Tensor& loss) {
    Dims sizes = Dims::filled(loss.dim(), 1);
    sizes[0] = loss.size(0);
    return sizes;
  }

  static constexpr int64_t kPixelsPerLatent = 8;

  TrainerConfig config_;
  DenoiserModel& model_;
  Denoiser& net_;
  const PromptEncoding& prompts_;
  std::unique_ptr<ImageEncoder> vae_;
  TextEncoders text_encoders_;
  Conditions conditions_;
  Dims latent_sizes_;
  Canvas canvas_;
  DType dtype_ = DType::float32;
  int64_t samples_ = 1;
};

}  // namespace

std::unique_ptr<Model> make_diffusion_trainer(Build& build, const Config& config) {
  const TrainerConfig c(config);
  std::unique_ptr<Model> model = c.denoiser.entry->make(build, c.denoiser.config);
  auto* denoiser = dynamic_cast<DenoiserModel*>(model.get());
  if (!denoiser) throw Error("[diffusion-trainer] denoiser: " + c.denoiser.entry->name + " is not a denoiser", "e.g. denoiser: sdxl-unet");
  denoiser->train_by(std::make_unique<ToolkitStep>(*denoiser, c));
  return model;
}

}  // namespace plimsoll
