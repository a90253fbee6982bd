// PEFT 0.20, peft/utils/constants.py: TRANSFORMERS_MODELS_TO_{LORA,IA3,LNTUNING}_TARGET_MODULES_MAPPING and
// ..._IA3_FEEDFORWARD_MODULES_MAPPING, for the families of the registry. LoKr's table is LoRA's.
#include "nn/tuning.h"

namespace plimsoll {

namespace {

using Names = std::vector<std::string>;

struct Defaults {
  const char* family;
  Names lora, ia3, feedforward, ln_tuning;
};

const std::vector<Defaults>& table() {
  static const Names norms{"input_layernorm", "post_attention_layernorm", "norm"};
  static const Names four_norms{"input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm",
                                "norm"};
  static const std::vector<Defaults> kTable{
      {"bert", {"query", "value"}, {"key", "value", "output.dense"}, {"output.dense"}, {}},
      {"gemma2", {"q_proj", "v_proj"}, {"q_proj", "v_proj", "down_proj"}, {"down_proj"}, four_norms},
      {"gemma3_text", {"q_proj", "v_proj"}, {"q_proj", "v_proj", "down_proj"}, {"down_proj"}, four_norms},
      {"gpt2", {"c_attn"}, {"c_attn", "mlp.c_proj"}, {"mlp.c_proj"}, {"ln_1", "ln_2", "ln_f"}},
      {"gpt_neox", {"query_key_value"}, {"query_key_value", "dense_4h_to_h"}, {"dense_4h_to_h"}, {}},
      {"llama", {"q_proj", "v_proj"}, {"k_proj", "v_proj", "down_proj"}, {"down_proj"}, norms},
      {"mistral", {"q_proj", "v_proj"}, {"k_proj", "v_proj", "down_proj"}, {"down_proj"}, norms},
      {"mixtral", {"q_proj", "v_proj"}, {"k_proj", "v_proj", "w2"}, {"w2"}, {}},
      {"mt5", {"q", "v"}, {"k", "v", "wi_1"}, {}, {"layer_norm", "final_layer_norm"}},
      {"opt", {"q_proj", "v_proj"}, {"q_proj", "k_proj", "fc2"}, {"fc2"}, {}},
      {"qwen2", {"q_proj", "v_proj"}, {"q_proj", "v_proj", "down_proj"}, {"down_proj"}, {"post_attention_layernorm"}},
      {"qwen3", {"q_proj", "v_proj"}, {"q_proj", "v_proj", "down_proj"}, {"down_proj"}, {"post_attention_layernorm"}},
      {"roberta", {"query", "value"}, {"key", "value", "output.dense"}, {"output.dense"}, {}},
      {"t5", {"q", "v"}, {"k", "v", "wo"}, {"wo"}, {"layer_norm", "final_layer_norm"}},
      {"xlm-roberta", {"query", "value"}, {}, {}, {}},
  };
  return kTable;
}

const Defaults* defaults_of(const std::string& family) {
  const std::string name = family.substr(0, family.find("-classifier"));
  for (const Defaults& d : table())
    if (name == d.family) return &d;
  return nullptr;
}

}  // namespace

Names default_targets(AdapterKind kind, const std::string& family) {
  const Defaults* d = defaults_of(family);
  if (!d) return {};
  switch (kind) {
    case AdapterKind::lora:
    case AdapterKind::lokr: return d->lora;
    case AdapterKind::ia3: return d->ia3;
    case AdapterKind::ln_tuning: return d->ln_tuning;
  }
  return {};
}

Names default_feedforward(const std::string& family) {
  const Defaults* d = defaults_of(family);
  return d ? d->feedforward : Names{};
}

}  // namespace plimsoll
