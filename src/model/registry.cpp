#include "model/registry.h"

#include <algorithm>

#include "model/families.h"

namespace plimsoll {

namespace {

using MakeVariant = std::unique_ptr<Model> (*)(Build&, const Config&, const std::string&);

ModelEntry torchvision(const std::string& name, MakeVariant make) {
  return {name, {}, InputKind::image, 224, [name, make](Build& build, const Config& config) { return make(build, config, name); }};
}

}  // namespace

const std::vector<ModelEntry>& model_registry() {
  static const std::vector<ModelEntry> kModels{
      {"gemma2", {"Gemma2ForCausalLM"}, InputKind::lm, 2048, make_gemma2},
      {"gpt2", {"GPT2LMHeadModel"}, InputKind::lm, 1024, make_gpt2},
      {"gpt_neox", {"GPTNeoXForCausalLM"}, InputKind::lm, 2048, make_gpt_neox},
      {"llama", {"LlamaForCausalLM"}, InputKind::lm, 2048, make_llama},
      {"mistral", {"MistralForCausalLM"}, InputKind::lm, 2048, make_mistral},
      {"opt", {"OPTForCausalLM"}, InputKind::lm, 2048, make_opt},
      {"phi3", {"Phi3ForCausalLM"}, InputKind::lm, 2048, make_phi3},
      {"qwen2", {"Qwen2ForCausalLM"}, InputKind::lm, 2048, make_qwen2},
      {"qwen3", {"Qwen3ForCausalLM"}, InputKind::lm, 2048, make_qwen3},
      torchvision("convnext_tiny", make_convnext),
      torchvision("convnext_small", make_convnext),
      torchvision("convnext_base", make_convnext),
      torchvision("convnext_large", make_convnext),
      torchvision("swin_t", make_swin),
      torchvision("swin_s", make_swin),
      torchvision("swin_b", make_swin),
      torchvision("swin_v2_t", make_swin),
      torchvision("swin_v2_s", make_swin),
      torchvision("swin_v2_b", make_swin),
      torchvision("vit_b_16", make_torchvision_vit),
      torchvision("vit_b_32", make_torchvision_vit),
      torchvision("vit_l_16", make_torchvision_vit),
      torchvision("vit_l_32", make_torchvision_vit),
      torchvision("vit_h_14", make_torchvision_vit),
  };
  return kModels;
}

const ModelEntry* find_model(const std::string& name) {
  for (const ModelEntry& e : model_registry())
    if (e.name == name || std::find(e.classes.begin(), e.classes.end(), name) != e.classes.end()) return &e;
  return nullptr;
}

}  // namespace plimsoll
