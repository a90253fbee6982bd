#include "model/registry.h"

#include <algorithm>

namespace plimsoll {

// Every family, one line each, in the order of `plimsoll list models`. NAME_family() is defined in the file of its architecture.
// clang-format off
#define PLIMSOLL_FAMILIES(FAMILY) \
  /* transformers, by model_type */ \
  FAMILY(albert) \
  FAMILY(bart) \
  FAMILY(bert) \
  FAMILY(biogpt) \
  FAMILY(bloom) \
  FAMILY(camembert) \
  FAMILY(clip) \
  FAMILY(cohere) \
  FAMILY(cohere2) \
  FAMILY(deberta_v2) \
  FAMILY(dinov2) \
  FAMILY(distilbert) \
  FAMILY(electra) \
  FAMILY(gemma) \
  FAMILY(gemma2) \
  FAMILY(gemma3) \
  FAMILY(glm) \
  FAMILY(gpt2) \
  FAMILY(gpt_bigcode) \
  FAMILY(gpt_neo) \
  FAMILY(gpt_neox) \
  FAMILY(gptj) \
  FAMILY(granite) \
  FAMILY(hubert) \
  FAMILY(llama) \
  FAMILY(llava) \
  FAMILY(mamba) \
  FAMILY(mistral) \
  FAMILY(modernbert) \
  FAMILY(mpt) \
  FAMILY(mt5) \
  FAMILY(olmo) \
  FAMILY(olmo2) \
  FAMILY(opt) \
  FAMILY(phi) \
  FAMILY(phi3) \
  FAMILY(qwen) \
  FAMILY(qwen2) \
  FAMILY(qwen2_vl) \
  FAMILY(qwen3) \
  FAMILY(roberta) \
  FAMILY(siglip) \
  FAMILY(smollm3) \
  FAMILY(stablelm) \
  FAMILY(starcoder2) \
  FAMILY(t5) \
  FAMILY(vit) \
  FAMILY(wav2vec2) \
  FAMILY(whisper) \
  FAMILY(xlm_roberta) \
  /* transformers: experts, and state spaces with them */ \
  FAMILY(mixtral) \
  FAMILY(qwen2_moe) \
  FAMILY(qwen3_moe) \
  FAMILY(deepseek_v2) \
  FAMILY(deepseek_v3) \
  FAMILY(gpt_oss) \
  FAMILY(llama4) \
  FAMILY(mamba2) \
  FAMILY(jamba) \
  /* diffusers, and the text encoders its pipelines have */ \
  FAMILY(autoencoder_kl) \
  FAMILY(clip_text) \
  FAMILY(diffusion_trainer) \
  FAMILY(qwen2_5_vl_text) \
  FAMILY(t5_encoder) \
  FAMILY(unet2d_condition) \
  /* diffusers */ \
  FAMILY(autoencoder_kl_wan) \
  FAMILY(chroma) \
  FAMILY(cogvideox) \
  FAMILY(dit) \
  FAMILY(flux) \
  FAMILY(flux2) \
  FAMILY(hidream) \
  FAMILY(hunyuan_video) \
  FAMILY(ltx_video) \
  FAMILY(lumina2) \
  FAMILY(omnigen2) \
  FAMILY(pixart) \
  FAMILY(qwen_image) \
  FAMILY(sd3) \
  FAMILY(wan) \
  /* people's own */ \
  FAMILY(gsa) \
  FAMILY(litgpt) \
  FAMILY(mamba_trainer) \
  FAMILY(mlp) \
  FAMILY(mmseg) \
  FAMILY(tsn) \
  FAMILY(stdiff) \
  FAMILY(megatron) \
  FAMILY(fsdm) \
  FAMILY(unet_segmentation) \
  FAMILY(yolov8) \
  /* any architecture, by the shapes of its weights */ \
  FAMILY(weights_only) \
  /* torchvision */ \
  FAMILY(alexnet) \
  FAMILY(convnext) \
  FAMILY(densenet) \
  FAMILY(deeplabv3) \
  FAMILY(efficientnet) \
  FAMILY(fcn) \
  FAMILY(googlenet) \
  FAMILY(inception) \
  FAMILY(mnasnet) \
  FAMILY(mobilenet_v2) \
  FAMILY(mobilenet_v3) \
  FAMILY(regnet) \
  FAMILY(resnet) \
  FAMILY(shufflenet) \
  FAMILY(squeezenet) \
  FAMILY(swin) \
  FAMILY(vgg) \
  FAMILY(torchvision_vit)
// clang-format on

#define PLIMSOLL_DECLARE(NAME) const Family& NAME##_family();
PLIMSOLL_FAMILIES(PLIMSOLL_DECLARE)
#undef PLIMSOLL_DECLARE

namespace {

// `plimsoll list presets` shows these families first, in this order, then the others in the order above.
// clang-format off
constexpr const char* kPresetOrder[] = {
    "gpt2", "gptj", "gpt_neo", "gpt_bigcode", "biogpt", "bloom", "mpt", "llama", "mistral", "granite", "olmo2", "cohere", "stablelm",
    "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "smollm3", "mt5", "phi", "phi3", "gpt_neox", "opt", "bert", "electra",
    "distilbert", "albert", "roberta", "xlm-roberta", "t5", "wav2vec2", "hubert", "fsdm", "yolov8", "modernbert", "deberta-v2", "bart",
    "whisper", "clip", "siglip", "qwen2_vl", "llava", "vit", "dinov2", "mamba", "mamba-trainer", "gsa", "stdiff", "unet2d-condition",
    "autoencoder-kl", "clip-text", "t5-encoder", "qwen2.5-vl-text", "mixtral", "qwen2_moe", "qwen3_moe", "deepseek_v2", "deepseek_v3",
    "gpt_oss", "llama4_text", "mamba2", "jamba", "diffusion-trainer", "flux", "chroma", "sd3", "qwen_image", "hidream", "omnigen2",
    "autoencoder-kl-wan", "wan", "hunyuan_video", "ltx_video", "cogvideox", "flux2", "qwen", "litgpt", "lumina2", "dit", "pixart"};
// clang-format on

std::vector<const Family*> families_by_presets() {
  std::vector<const Family*> families = model_families();
  const auto place = [](const Family* family) { return std::find(std::begin(kPresetOrder), std::end(kPresetOrder), family->name); };
  std::stable_sort(families.begin(), families.end(), [&](const Family* a, const Family* b) { return place(a) < place(b); });
  return families;
}

}  // namespace

const std::vector<const Family*>& model_families() {
#define PLIMSOLL_ADDRESS(NAME) &NAME##_family(),
  static const std::vector<const Family*> kFamilies{PLIMSOLL_FAMILIES(PLIMSOLL_ADDRESS)};
#undef PLIMSOLL_ADDRESS
  return kFamilies;
}

const Family* find_family(const std::string& name) {
  for (const Family* family : model_families())
    if (family->name == name) return family;
  return nullptr;
}

std::vector<std::string> families_where(const std::function<bool(const Family&)>& holds) {
  std::vector<std::string> names;
  for (const Family* family : model_families())
    if (holds(*family)) names.push_back(family->name);
  return names;
}

const std::vector<ModelEntry>& model_registry() {
  static const std::vector<ModelEntry> kModels = [] {
    std::vector<ModelEntry> models;
    for (const Family* family : model_families())
      for (ModelEntry model : family->models) {
        model.family = family;
        models.push_back(std::move(model));
      }
    return models;
  }();
  return kModels;
}

const ModelEntry* find_model(const std::string& name) {
  for (const ModelEntry& e : model_registry())
    if (e.name == name || std::find(e.classes.begin(), e.classes.end(), name) != e.classes.end()) return &e;
  return nullptr;
}

const std::vector<Preset>& presets() {
  static const std::vector<Preset> kPresets = [] {
    std::vector<Preset> all;
    for (const Family* family : families_by_presets())
      for (Preset preset : family->presets) {
        if (!preset.family) preset.family = family->models.front().name.c_str();
        all.push_back(preset);
      }
    return all;
  }();
  return kPresets;
}

}  // namespace plimsoll
