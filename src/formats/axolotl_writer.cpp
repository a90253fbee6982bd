// axolotl's YAML, the way back: which of its keys say each setting.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "formats/launch.h"
#include "formats/readers.h"
#include "formats/trainer.h"
#include "job/packed_storage.h"
#include "job/quantization_kind.h"
#include "job/settings.h"
#include "util/text.h"

namespace plimsoll {

namespace {

using Json = nlohmann::json;

Said say_batch(const Wanted& w) {
  Said said{{{"micro_batch_size", w.job.batch}}, ""};
  if (w.has("batch_size")) said.keys.push_back({"batch_size", w.job.batch * w.job.accumulation});
  return said;
}

Said say_accumulation(const Wanted& w) {
  if (w.has("batch_size") && !w.has("gradient_accumulation_steps")) return say_batch(w);
  Said said{{{"gradient_accumulation_steps", w.job.accumulation}}, ""};
  if (w.has("batch_size")) said.keys.push_back({"batch_size", w.job.batch * w.job.accumulation});
  return said;
}

Said say_precision(const Wanted& w) {
  const Precision p = w.job.precision;
  if (p == Precision::amp || p == Precision::amp_fp16)
    return {{}, "axolotl's bf16 and fp16 load the weights in that type: fp32 weights under autocast cannot be said"};
  Said said{{{"bf16", p != Precision::bf16 ? Json(false) : w.job.autocast ? Json(true) : Json("full")}}, ""};
  if (p == Precision::fp16) said.keys.push_back({"float16", true});
  if (w.find("fp16")) said.keys.push_back({"fp16", false});
  if (p != Precision::fp16 && w.find("float16")) said.keys.push_back({"float16", false});
  if (p == Precision::fp32) {
    if (w.find("bfloat16")) said.keys.push_back({"bfloat16", false});
    said.keys.push_back({"float32", true});
  }
  return said;
}

Said say_own_checkpointing(const Wanted& w) {
  if (w.job.offload_activations == Offload::pageable && w.job.checkpointing.on) {
    Said said = say_checkpointing(w, true);
    if (!said.keys.empty()) said.keys[0].value = "offload";
    return said;
  }
  return say_checkpointing(w, !w.has("unfrozen_parameters") && !w.has("rl"));
}

Said say_offload(const Wanted& w) {
  if (w.job.offload_activations == Offload::pageable) return w.job.checkpointing.on ? say_own_checkpointing(w) : Said{};
  return {{{"activation_offloading", w.job.offload_activations == Offload::pinned}}, ""};
}

Said say_optimizer(const Wanted& w) {
  for (const auto& [theirs, ours] : {std::pair{"ao_adamw_4bit", "torchao.AdamW4bit"},
                                     {"ao_adamw_8bit", "torchao.AdamW8bit"},
                                     {"ao_adamw_fp8", "torchao.AdamWFp8"},
                                     {"muon", "Muon+AdamW"}})
    if (w.job.optimizer.name == ours) return {{{"optimizer", theirs}}, ""};
  return say_hf_optimizer(w, "optimizer");
}

// The adapter and the type of the base are one choice.
Said say_adapter(const Wanted& w) {
  const std::optional<AdapterSettings>& a = w.job.tuning.adapter;
  const std::optional<QuantizationSettings>& q = w.job.tuning.quantization;
  if ((a && a->kind != AdapterKind::lora) || (q && (!a || !is_bitsandbytes(*q) || packed_storage(*q)))) return {};
  const bool four = q && q->bits() == 4, eight = q && !four;
  Said said{{{"adapter", !a ? Json() : four ? Json("qlora") : Json("lora")}}, ""};
  if (four || w.find("load_in_4bit")) said.keys.push_back({"load_in_4bit", four});
  if (eight || w.find("load_in_8bit")) said.keys.push_back({"load_in_8bit", eight});
  if (four && (q->type != "nf4" || w.find("bnb_config_kwargs"))) said.keys.push_back({"bnb_config_kwargs.bnb_4bit_quant_type", q->type});
  if (four && (!q->double_quant || w.find("bnb_config_kwargs")))
    said.keys.push_back({"bnb_config_kwargs.bnb_4bit_use_double_quant", q->double_quant});
  if (!a || (w.before.tuning.adapter && to_json(*w.before.tuning.adapter) == to_json(*a))) return said;
  for (KeyValue k : {KeyValue{"lora_r", a->r}, {"lora_alpha", plain_number(a->alpha)}, {"lora_dropout", plain_number(a->dropout)}})
    said.keys.push_back(std::move(k));
  const bool all = a->target_modules.all_linear;
  if (all || w.find("lora_target_linear")) said.keys.push_back({"lora_target_linear", all});
  if (!all && !a->target_modules.empty()) said.keys.push_back({"lora_target_modules", targets_of(*a)});
  if (!a->modules_to_save.empty()) said.keys.push_back({"lora_modules_to_save", a->modules_to_save});
  if (a->use_dora || w.has("peft_use_dora")) said.keys.push_back({"peft_use_dora", a->use_dora});
  return said;
}

Said say_attention(const Wanted& w) {
  const AttentionKernel a = w.job.attention;
  const bool flash = a == AttentionKernel::flash_attention_2, eager = a == AttentionKernel::eager,
             automatic = a == AttentionKernel::automatic;
  if (!flash && !eager && !automatic) return {};
  Said said;
  bool known = false;
  for (const auto& [key, on] : {std::pair{"flash_attention", flash}, {"eager_attention", eager}, {"sdp_attention", automatic}})
    if (w.find(key)) said.keys.push_back({key, on}), known = known || on;
  if (w.has("attn_implementation") || !known)
    said.keys.push_back({"attn_implementation", flash ? "flash_attention_2" : eager ? "eager" : "sdpa"});
  return said;
}

Said say_kernel(const Wanted& w) {
  const LossKernel kernel = w.job.loss_settings.kernel;
  Json plugins = w.find("plugins") && w.find("plugins")->is_array() ? *w.find("plugins") : Json::array();
  const auto with_plugin = [&](const char* name) {
    for (const Json& p : plugins)
      if (p == name) return;
    plugins.push_back(name);
  };
  Said said;
  if (kernel == LossKernel::liger) {
    with_plugin("axolotl.integrations.liger.LigerPlugin");
    said.keys.push_back({"liger_fused_linear_cross_entropy", true});
  } else if (w.is("liger_fused_linear_cross_entropy")) {
    said.keys.push_back({"liger_fused_linear_cross_entropy", false});
  }
  if (kernel == LossKernel::cut) {
    with_plugin("axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin");
    said.keys.push_back({"cut_cross_entropy", true});
  }
  if (kernel == LossKernel::chunked_output) said.keys.push_back({"chunked_cross_entropy", true});
  if (kernel == LossKernel::chunked || said.keys.empty()) return {};
  if (!w.find("plugins") ? !plugins.empty() : plugins != *w.find("plugins")) said.keys.insert(said.keys.begin(), {"plugins", plugins});
  return said;
}

}  // namespace

const Writes& writes_axolotl() {
  static const Writes kWrites = [] {
    Writes w{{{"batch", "micro_batch_size", say_batch},
              {"accumulation", "gradient_accumulation_steps", say_accumulation},
              {"seq", "sequence_len"},
              {"precision", "bf16", say_precision},
              {"autocast", "bf16", say_precision},
              {"checkpointing", "gradient_checkpointing", say_own_checkpointing},
              {"offload_activations", "activation_offloading", say_offload},
              {"optimizer", "optimizer", say_optimizer},
              {"optimizer_args", "optimizer", say_optimizer},
              {"clip", "max_grad_norm"},
              {"compile", "torch_compile"},
              {"lora", "adapter", say_adapter},
              {"quantization", "load_in_4bit", say_adapter},
              {"attention", "attn_implementation", say_attention},
              {"loss_kernel", "liger_fused_linear_cross_entropy", say_kernel},
              {"eval_batch", "eval_batch_size"},
              {"pad_to_multiple_of", "pad_to_multiple_of"},
              {"ddp", "ddp_find_unused_parameters", say_hf_ddp}},
             FlagStyle::dashes};
    for (const WrittenKey& k : dataloader_keys()) w.keys.push_back(k);
    return w;
  }();
  return kWrites;
}

}  // namespace plimsoll
