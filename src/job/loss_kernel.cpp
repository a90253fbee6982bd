#include "job/loss_kernel.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "job/tuning.h"
#include "util/error.h"
#include "util/text.h"

namespace plimsoll {

namespace {

constexpr std::array kNames{"model", "liger", "chunked", "chunked-output", "cut"};

// Liger-Kernel, transformers/monkey_patch.py, MODEL_TYPE_TO_APPLY_LIGER_FN (August 2026), its text models.
const std::vector<std::string> kLigerFamilies{
    "deepseek_v4", "exaone4", "falcon_h1", "gemma",   "gemma2",       "gemma3_text",      "gemma4_text",    "glm4",     "gpt_oss",
    "granite",     "llama",   "ministral", "mistral", "mixtral",      "hunyuan_v1_dense", "hunyuan_v1_moe", "nemotron", "olmo2",
    "olmo3",       "phi3",    "qwen2",     "qwen3",   "qwen3_5_text", "qwen3_moe",        "qwen3_next",     "smollm3"};
// Those whose layers are modelled as that library replaces them.
const std::vector<std::string> kLigerLayerFamilies{"gemma2", "llama", "mistral", "phi3", "qwen2", "qwen3"};
// cut-cross-entropy (commit d42911f), transformers/patch.py, PATCH_FNS
const std::vector<std::string> kCutFamilies{"gemma2", "llama", "mistral", "phi3", "qwen2"};

void require_patched(const char* setting, const char* library, const std::vector<std::string>& families, const std::string& family) {
  if (std::find(families.begin(), families.end(), family) != families.end()) return;
  throw Error(std::string("[") + setting + "] " + library + " does not patch " + family, "it patches " + join(families, ", "));
}

}  // namespace

const char* to_string(LossKernel k) { return kNames[static_cast<size_t>(k)]; }

LossKernel parse_loss_kernel(const std::string& text) {
  for (size_t i = 0; i < kNames.size(); ++i)
    if (text == kNames[i]) return static_cast<LossKernel>(i);
  throw Error("[job] loss_kernel '" + text + "' is not known", did_you_mean(text, {kNames.begin(), kNames.end()}));
}

LigerKernels parse_liger_kernels(const nlohmann::json& value) {
  if (value == "none" || value == false || value.is_null() || value == nlohmann::json::array()) return {};
  if (value == "all" || value == true) return {true, true, true};
  LigerKernels kernels;
  for (const std::string& name : parse_name_list(value, "liger_kernels")) {
    if (name == "rope")
      kernels.rope = true;
    else if (name == "rms_norm")
      kernels.rms_norm = true;
    else if (name == "swiglu" || name == "geglu")
      kernels.swiglu = true;
    else
      throw Error("[job] liger_kernels '" + name + "' is not known", "known: rope, rms_norm, swiglu, all; the loss is loss_kernel: liger");
  }
  return kernels;
}

void check_loss_settings(const LossSettings& loss, const std::string& family) {
  if (loss.kernel == LossKernel::liger) require_patched("loss_kernel", "Liger", kLigerFamilies, family);
  if (loss.kernel == LossKernel::cut) require_patched("loss_kernel", "cut-cross-entropy", kCutFamilies, family);
  if (!loss.liger.any()) return;
  const std::string base = family.substr(0, family.find("-classifier"));
  if (std::find(kLigerLayerFamilies.begin(), kLigerLayerFamilies.end(), base) == kLigerLayerFamilies.end())
    throw Error("[liger_kernels] Liger's layers are not modelled in " + family, "they are in " + join(kLigerLayerFamilies, ", "));
}

}  // namespace plimsoll
