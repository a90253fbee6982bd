#include "model/hub_names.h"

#include <algorithm>
#include <cctype>

#include "model/resolve.h"
#include "util/text.h"

namespace plimsoll {

namespace {

// Published under a longer name than ours, with the same sizes.
struct Alias {
  const char* name;
  const char* preset;
};
constexpr Alias kAliases[] = {
    {"c4ai-command-r-plus", "command-r-plus"},
    {"deepseek-r1-distill-llama-70b", "llama-3.3-70b"},
    {"deepseek-r1-distill-llama-8b", "llama-3.1-8b"},
    {"deepseek-r1-distill-qwen-14b", "qwen2.5-14b"},
    {"deepseek-r1-distill-qwen-32b", "qwen2.5-32b"},
    {"deepseek-r1-distill-qwen-7b", "qwen2.5-7b"},
    {"c4ai-command-r-v01", "command-r"},
    {"llama-4-maverick-17b-128e", "llama-4-maverick"},
    {"llama-4-scout-17b-16e", "llama-4-scout"},
    {"mistral-nemo-2407", "mistral-nemo-12b"},
    {"mixtral-8x22b-v0.1", "mixtral-8x22b"},
    {"mixtral-8x7b-v0.1", "mixtral-8x7b"},
    {"olmo-2-0325-32b", "olmo-2-32b"},
    {"olmo-2-0425-1b", "olmo-2-1b"},
    {"olmo-2-1124-13b", "olmo-2-13b"},
    {"olmo-2-1124-7b", "olmo-2-7b"},
    {"phi-3-medium-4k", "phi-3-medium"},
    {"phi-3-mini-4k", "phi-3-mini"},
    {"tinyllama-1.1b-v1.0", "tinyllama-1.1b"},
    {"vit-base-patch16-224", "vit-b16"},
    {"vit-base-patch16-224-in21k", "vit-b16"},
    {"vit-large-patch16-224", "vit-l16"},
    {"flux.1-dev", "flux-dev"},
    {"flux.1-schnell", "flux-schnell"},
    {"flux.1-kontext-dev", "flux-kontext-dev"},
    {"flex.1-alpha", "flex-1"},
    {"flex.2-preview", "flex-2"},
    {"stable-diffusion-xl-base-1.0", "sdxl-unet"},
    {"stable-diffusion-v1-4", "sd-1.5-unet"},
    {"stable-diffusion-v1-5", "sd-1.5-unet"},
    {"stable-diffusion-2", "sd-2.1-unet"},
    {"stable-diffusion-2-1", "sd-2.1-unet"},
    {"stable-diffusion-3-medium", "sd3-medium"},
    {"stable-diffusion-3.5-medium", "sd3.5-medium"},
    {"stable-diffusion-3.5-large", "sd3.5-large"},
    {"lumina-image-2.0", "lumina-2"},
    {"hunyuanvideo", "hunyuan-video"},
    {"wan2.1-t2v-1.3b", "wan2.1-1.3b"},
    {"wan2.1-t2v-14b", "wan2.1-14b"},
    {"pixart-xl-2-512x512", "pixart-alpha-xl-2-512"},
    {"pixart-xl-2-1024-ms", "pixart-alpha-xl-2-1024"},
    {"pixart-sigma-xl-2-1024-ms", "pixart-sigma-xl-2-1024"},
};

// How a checkpoint was tuned or packed; its sizes are those of the model it is of.
constexpr const char* kTuned[] = {"instruct", "chat", "base", "hf", "it", "pt", "diffusers", "unsloth", "gguf", "bnb", "4bit", "8bit"};
constexpr const char* kPacked[] = {"gptq", "awq", "fp8", "int4", "int8", "w4a16", "w8a8", "aqlm", "hqq", "exl2", "nvfp4", "mxfp4"};

bool is_preset(const std::string& name) {
  return std::any_of(presets().begin(), presets().end(), [&](const Preset& p) { return name == p.name; });
}

// The last part of the path in lower case; "phi-1_5" is 1.5.
std::string plain(const std::string& text) {
  std::string name = lower(text);
  while (name.ends_with('/')) name.pop_back();
  name = name.substr(name.rfind('/') + 1);
  for (size_t i = 1; i + 1 < name.size(); ++i)
    if (name[i] == '_' && std::isdigit(static_cast<unsigned char>(name[i - 1])) && std::isdigit(static_cast<unsigned char>(name[i + 1])))
      name[i] = '.';
  return name;
}

std::optional<std::string> preset_of(const std::string& name) {
  if (is_preset(name)) return name;
  for (const Alias& a : kAliases)
    if (name == a.name) return a.preset;
  return std::nullopt;
}

}  // namespace

std::optional<HubName> find_hub_name(const std::string& text) {
  const std::string name = plain(text);
  if (const auto preset = preset_of(name)) return HubName{*preset, nullptr, ""};
  HubName found;
  std::vector<std::string> parts;
  bool bitsandbytes = false;
  for (const std::string& part : split_at(name, '-')) {
    const auto is_part = [&](const char* word) { return part == word; };
    bitsandbytes = bitsandbytes || part == "bnb";
    if (part == "4bit") found.quantization = {{"type", "nf4"}, {"double_quant", true}, {"compute_dtype", "bf16"}};
    if (part == "8bit") found.quantization = {{"type", "int8"}};
    const bool packed = std::any_of(std::begin(kPacked), std::end(kPacked), is_part);
    if (packed && found.method.empty()) found.method = part;
    const bool meta = part == "meta" && parts.empty();
    if (!packed && !meta && std::none_of(std::begin(kTuned), std::end(kTuned), is_part)) parts.push_back(part);
  }
  if (!found.quantization.is_null() && !bitsandbytes && found.method.empty()) return std::nullopt;  // 4 bits of what kind is not said
  if (!found.method.empty()) found.quantization = nullptr;
  const auto preset = preset_of(join(parts, "-"));
  if (!preset) return std::nullopt;
  found.preset = *preset;
  return found;
}

namespace {

using Words = std::vector<std::string>;

Words words_of(const std::string& name) {
  std::string text = plain(name);
  std::replace(text.begin(), text.end(), '_', '-');
  return split_at(text, '-');
}

// "7b", "1.5b", "135m".
bool is_size(const std::string& word) {
  return word.size() > 1 && std::isdigit(static_cast<unsigned char>(word[0])) && (word.back() == 'b' || word.back() == 'm') &&
         std::all_of(word.begin(), word.end() - 1, [](unsigned char c) { return std::isdigit(c) || c == '.'; });
}

// Models of another make than the one whose name they carry.
constexpr const char* kOtherParts[] = {"vl",  "vision", "vlm",    "omni",  "audio",      "speech",    "asr",
                                       "tts", "eagle",  "medusa", "draft", "speculator", "embedding", "reranker",
                                       "moe", "image",  "llava",  "video", "ocr",        "next"};
// The same sizes, trained on other texts.
constexpr const char* kSpecialities[] = {"coder", "math", "code"};

template <size_t N>
bool is_one_of(const std::string& word, const char* const (&list)[N]) {
  return std::any_of(std::begin(list), std::end(list), [&](const char* each) { return word == each; });
}

}  // namespace

bool is_hub_id(const std::string& text) {
  const size_t slash = text.find('/');
  if (slash == std::string::npos || slash == 0 || slash + 1 == text.size() || text.find('/', slash + 1) != std::string::npos) return false;
  return text[0] != '.' && text[0] != '~' && std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return std::isalnum(c) || c == '-' || c == '_' || c == '.' || c == '/';
         });
}

std::optional<std::string> preset_in_name(const std::string& text) {
  Words words = words_of(text);
  if (std::any_of(words.begin(), words.end(), [](const std::string& w) { return is_one_of(w, kPacked) || is_one_of(w, kOtherParts); }))
    return std::nullopt;
  std::erase_if(words, [](const std::string& w) { return is_one_of(w, kSpecialities); });
  std::optional<std::string> longest;
  for (const Preset& p : presets()) {
    const Words name = words_of(p.name);
    const bool sized = name.size() > 1 && std::any_of(name.begin(), name.end(), is_size);
    const bool there = std::search(words.begin(), words.end(), name.begin(), name.end()) != words.end();
    if (sized && there && (!longest || longest->size() < std::string(p.name).size())) longest = p.name;
  }
  return longest;
}

}  // namespace plimsoll
