// The step of the AI Toolkit (extensions_built_in/sd_trainer/SDTrainer.py, train_single_accumulation): a denoiser that is trained, in
// full or through an adapter, a frozen autoencoder, and text encoders that are frozen or trained as the denoiser is. What is cached is not
// called and not on the device: the toolkit moves the autoencoder to the host once latents are cached, and drops text encoders once texts
// are. Where sd-scripts' loop (train_network.py, process_batch) does otherwise, it is said.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "model/diffusion/diffusion_trainer_config.h"
#include "model/diffusion/toolkit_images.h"
#include "model/family.h"
#include "nn/denoiser.h"
#include "nn/layers.h"
#include "ops/loss.h"
#include "ops/pointwise.h"
#include "ops/reduce.h"
#include "ops/reshape.h"
#include "tensor/inference.h"

namespace plimsoll {

namespace {

// While it lives, modules are built in another type and with a tuning of their own in place of the denoiser's.
class PartBuild {
 public:
  PartBuild(Build& build, const std::string& part, const TuningSettings& tuning, DType dtype)
      : build_(build), dtype_(build.dtype), tuning_(std::move(build.tuning)) {
    build.tuning = Tuning(tuning, part, {});
    build.dtype = dtype;
  }
  ~PartBuild() {
    build_.tuning = std::move(tuning_);
    build_.dtype = dtype_;
  }

 private:
  Build& build_;
  DType dtype_;
  Tuning tuning_;
};

TuningSettings frozen(const std::string& part, bool quantize = false) {
  TuningSettings tuning;
  tuning.frozen = {part};
  if (quantize) tuning.quantization = parse_quantization("qfloat8");
  return tuning;
}

// The denoiser's adapter on the layers of CLIPAttention and CLIPMLP (TEXT_ENCODER_TARGET_REPLACE_MODULE of both trainers).
TuningSettings adapted(AdapterSettings adapter) {
  adapter.target_modules = {};
  adapter.target_modules.names = {"q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2"};
  adapter.exclude_modules = {};
  adapter.rank_pattern.clear();
  TuningSettings tuning;
  tuning.adapter = std::move(adapter);
  return tuning;
}

// sd-scripts replaces the attention of the denoiser alone.
class OwnAttention {
 public:
  OwnAttention(Tape& tape, bool on) : tape_(tape), old_(tape.dialect.attention) {
    if (on && old_ == AttentionKernel::eager) tape.dialect.attention = AttentionKernel::automatic;
  }
  ~OwnAttention() { tape_.dialect.attention = old_; }

 private:
  Tape& tape_;
  AttentionKernel old_;
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
      const PartBuild part(build, "vae", frozen("vae"), c.vae_dtype.value_or(build.load_dtype));
      vae_ = make_image_encoder(model, *c.vae);
    }
    if (c.encodes_nothing()) return;
    for (const TrainerConfig::Part& part : c.text_encoders) add_text_encoder(part);
  }

  // LoRA: the text encoders', then the denoiser's (prepare_optimizer_params of both trainers' networks); in full the other way round. There
  // sd-scripts makes a group of each of SDXL's encoders (sdxl_train.py), and one of everything where there is one (train_db.py,
  // fine_tune.py).
  ParameterGroups parameter_groups() const override {
    if (!config_.train_text_encoder) return {};
    const bool lora = model_.build().tuning.has_adapter();
    ParameterGroups groups;
    groups.clipped_apart = !config_.sd_scripts;
    for (const auto& encoder : text_encoders_) {
      const std::vector<Parameter*> own = trained(*encoder);
      if (own.empty()) continue;
      if (groups.lists.empty() || (config_.sd_scripts && !lora)) groups.lists.emplace_back();
      groups.lists.back().insert(groups.lists.back().end(), own.begin(), own.end());
    }
    groups.lists.insert(lora ? groups.lists.end() : groups.lists.begin(), trained(net_));
    if (config_.sd_scripts && !lora && text_encoders_.size() == 1) {
      groups.lists[0].insert(groups.lists[0].end(), groups.lists[1].begin(), groups.lists[1].end());
      groups.lists.pop_back();
    }
    return groups;
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
    if (config_.sd_scripts) make_leaf(noisy_latents);  // requires_grad_(train_unet)
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
  void add_text_encoder(const TrainerConfig::Part& part) {
    Build& build = model_.build();
    const std::string name = text_encoders_.empty() ? "text_encoder" : fmt::format("text_encoder_{}", text_encoders_.size() + 1);
    const bool trains = config_.train_text_encoder && part.is_clip(), lora = build.tuning.has_adapter();
    TuningSettings tuning = frozen(name, config_.quantize_te && !part.is_clip());  // CLIP's never is
    if (trains && lora) tuning = adapted(denoisers_adapter());
    // prepare_text_encoder_grad_ckpt_workaround: the embeddings collect gradients, which nothing updates or resets
    if (trains && lora && config_.sd_scripts && build.checkpointing.on()) tuning.trainable = {"token_embedding", "position_embedding"};
    if (trains && !lora) tuning = {};
    if (const auto own = config_.te_frozen.find(name); trains && !lora && own != config_.te_frozen.end()) tuning.frozen = own->second;
    const PartBuild with(build, name, tuning, trains && !lora ? build.dtype : config_.te_dtype.value_or(build.load_dtype));
    text_encoders_.push_back(config_.text_encoder(part)(model_, name, part.config));
  }

  // As its first linear layer has it.
  AdapterSettings denoisers_adapter() const {
    std::vector<const Module*> waiting{&net_};
    while (!waiting.empty()) {
      const Module& module = *waiting.back();
      waiting.pop_back();
      const AdapterSettings* adapter =
          dynamic_cast<const Linear*>(&module) ? model_.build().tuning.adapter_of(module.path(), true) : nullptr;
      if (adapter) return *adapter;
      for (const Module* child : module.children()) waiting.push_back(child);
    }
    throw Error(
        "[diffusion-trainer] train_text_encoder: no linear layer of the denoiser has an adapter to give the text encoders one like it",
        "give target_modules that it has, or leave train_text_encoder out");
  }

  // What the optimizer gets of a network: of one with an adapter no layers of its own.
  std::vector<Parameter*> trained(const Module& net) const {
    std::vector<Parameter*> out;
    const Tape& tape = model_.tape();
    const bool lora = model_.build().tuning.has_adapter();
    for (Parameter* p : net.parameters()) {
      const bool embeds = lora && tape.trace.scope_path(tape.scope_of(p->value)).ends_with("_embedding");
      if (p->value.requires_grad() && !embeds) out.push_back(p);
    }
    return out;
  }

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
    const AutocastGuard no_autocast(model_.tape(), std::nullopt);
    const OwnAttention diffusers_default(model_.tape(), config_.sd_scripts);
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
    if (text_encoders_.empty()) {  // clone().detach() of what the loader gave
      GradGuard no_grad(model_.tape(), false);
      for (const Tensor& t : own) texts.push_back(clone(t));
      return texts;
    }
    const Tensors encoded = config_.train_text_encoder ? encode_in_training(own) : encode_frozen(own);
    for (const Tensor& t : encoded) texts.push_back(is_floating(t.dtype()) ? to(t, dtype_) : t);
    check_texts(texts);
    return texts;
  }

  Tensors encode_frozen(const Tensors& tokens) {
    const Inference mode(model_.tape());
    return prompts_.encode(text_encoders_, tokens);
  }

  // transformers 5 lets the embeddings' results collect gradients where it recomputes.
  Tensors encode_in_training(const Tensors& tokens) {
    Build& build = model_.build();
    build.input_require_grads = !config_.sd_scripts && build.checkpointing.on();
    Tensors encoded = prompts_.encode(text_encoders_, tokens);
    build.input_require_grads = false;
    return encoded;
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
      GradGuard no_grad(model_.tape(), config_.sd_scripts);
      input = config_.sd_scripts ? latents : cat(split(latents, 1, 0), 0);  // scale_model_input
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

std::unique_ptr<Model> make_diffusion_trainer(Build& build, const Config& config) {
  const TrainerConfig c(config);
  std::unique_ptr<Model> model = c.denoiser.entry->make(build, c.denoiser.config);
  auto* denoiser = dynamic_cast<DenoiserModel*>(model.get());
  if (!denoiser) throw Error("[diffusion-trainer] denoiser: " + c.denoiser.entry->name + " is not a denoiser", "e.g. denoiser: sdxl-unet");
  denoiser->train_by(std::make_unique<ToolkitStep>(*denoiser, c));
  return model;
}

}  // namespace

const Family& diffusion_trainer_family() {
  static const Family kFamily{
      .name = "diffusion-trainer",
      .library = "the AI Toolkit",
      .models = {{"diffusion-trainer", {"diffusion_trainer"}, InputKind::own, 1024, make_diffusion_trainer}},
      .presets =
          {// the AI Toolkit, by its names of architectures
           {"ai-toolkit-sd1", R"({"denoiser":"sd-1.5-unet","vae":"sd-vae","text_encoders":["clip-vit-l-14-text"]})", 512},
           {"ai-toolkit-sd2", R"({"denoiser":"sd-2.1-unet","vae":"sd-vae","text_encoders":["openclip-vit-h-14-text"]})", 768},
           {"ai-toolkit-sdxl",
            R"({"denoiser":"sdxl-unet","vae":"sdxl-vae","text_encoders":["clip-vit-l-14-text","openclip-bigg-14-text"]})", 1024},
           {"ai-toolkit-sd3",
            R"({"denoiser":"sd3-medium","vae":"flux-vae","text_encoders":["clip-vit-l-14-text-projection","openclip-bigg-14-text","t5-v1.1-xxl-encoder"],"flow_matching":true})",
            1024},
           {"ai-toolkit-flux",
            R"({"denoiser":"flux-dev","vae":"flux-vae","text_encoders":["clip-vit-l-14-text","t5-v1.1-xxl-encoder"],"flow_matching":true})",
            1024},
           {"ai-toolkit-flux_kontext",
            R"({"denoiser":"flux-kontext-dev","vae":"flux-vae","text_encoders":["clip-vit-l-14-text","t5-v1.1-xxl-encoder"],"flow_matching":true,"cache_latents":true})",
            1024},
           {"ai-toolkit-flex1",
            R"({"denoiser":"flex-1","vae":"flux-vae","text_encoders":["clip-vit-l-14-text","t5-v1.1-xxl-encoder"],"flow_matching":true})",
            1024},
           {"ai-toolkit-flex2",
            R"({"denoiser":"flex-2","vae":"flux-vae","text_encoders":["clip-vit-l-14-text","t5-v1.1-xxl-encoder"],"flow_matching":true,"cache_latents":true})",
            1024},
           {"ai-toolkit-chroma", R"({"denoiser":"chroma","vae":"flux-vae","text_encoders":["t5-v1.1-xxl-encoder"],"flow_matching":true})",
            1024},
           {"ai-toolkit-lumina2", R"({"denoiser":"lumina-2","vae":"flux-vae","text_encoders":["gemma-2-2b"],"flow_matching":true})", 1024},
           {"ai-toolkit-hidream",
            R"({"denoiser":"hidream-i1","vae":"flux-vae","text_encoders":[{"model":"clip-vit-l-14-text-projection","max_position_embeddings":248},{"model":"openclip-bigg-14-text","max_position_embeddings":218},"t5-v1.1-xxl-encoder","llama-3.1-8b"],"flow_matching":true})",
            1024},
           {"ai-toolkit-omnigen2",
            R"({"denoiser":"omnigen2","vae":"flux-vae","text_encoders":["qwen2.5-vl-3b-text"],"flow_matching":true})", 1024},
           // Qwen2.5-VL without its eyes, as the toolkit leaves it
           {"ai-toolkit-qwen_image",
            R"({"denoiser":{"model":"qwen-image","text_mask":true},"vae":"qwen-image-vae","text_encoders":[{"model":"qwen2.5-vl-7b-text","vision_config":null}],"flow_matching":true})",
            1024},
           // kohya's sd-scripts
           {"sd-scripts-sd1", R"({"loop":"sd-scripts","denoiser":"sd-1.5-unet","vae":"sd-vae","text_encoders":["clip-vit-l-14-text"]})",
            512},
           {"sd-scripts-sd2", R"({"loop":"sd-scripts","denoiser":"sd-2.1-unet","vae":"sd-vae","text_encoders":["openclip-vit-h-14-text"]})",
            768},
           {"sd-scripts-sdxl",
            R"({"loop":"sd-scripts","denoiser":"sdxl-unet","vae":"sdxl-vae","text_encoders":["clip-vit-l-14-text","openclip-bigg-14-text"]})",
            1024},
           {"sd-scripts-sd3",
            R"({"loop":"sd-scripts","denoiser":"sd3-medium","vae":"flux-vae","text_encoders":["clip-vit-l-14-text-projection","openclip-bigg-14-text","t5-v1.1-xxl-encoder"],"flow_matching":true})",
            1024},
           {"sd-scripts-flux",
            R"({"loop":"sd-scripts","denoiser":"flux-dev","vae":"flux-vae","text_encoders":["clip-vit-l-14-text","t5-v1.1-xxl-encoder"],"flow_matching":true})",
            1024},
           {"sd-scripts-lumina2",
            R"({"loop":"sd-scripts","denoiser":"lumina-2","vae":"flux-vae","text_encoders":["gemma-2-2b"],"flow_matching":true})", 1024}},
  };
  return kFamily;
}

}  // namespace plimsoll
