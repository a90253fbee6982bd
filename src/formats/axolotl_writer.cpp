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

Encoded encode_batch(const EncodeRequest& w) {
  Encoded encoded{{{"micro_batch_size", w.job.batch}}, ""};
  if (w.has("batch_size")) encoded.keys.push_back({"batch_size", w.job.batch * w.job.accumulation});
  return encoded;
}

Encoded encode_accumulation(const EncodeRequest& w) {
  if (w.has("batch_size") && !w.has("gradient_accumulation_steps")) return encode_batch(w);
  Encoded encoded{{{"gradient_accumulation_steps", w.job.accumulation}}, ""};
  if (w.has("batch_size")) encoded.keys.push_back({"batch_size", w.job.batch * w.job.accumulation});
  return encoded;
}

Encoded encode_precision(const EncodeRequest& w) {
  const Precision p = w.job.precision;
  if (p == Precision::amp || p == Precision::amp_fp16)
    return {{}, "axolotl's bf16 and fp16 load the weights in that type: fp32 weights under autocast cannot be said"};
  Encoded encoded{{{"bf16", p != Precision::bf16 ? Json(false) : w.job.autocast ? Json(true) : Json("full")}}, ""};
  if (p == Precision::fp16) encoded.keys.push_back({"float16", true});
  if (w.find("fp16")) encoded.keys.push_back({"fp16", false});
  if (p != Precision::fp16 && w.find("float16")) encoded.keys.push_back({"float16", false});
  if (p == Precision::fp32) {
    if (w.find("bfloat16")) encoded.keys.push_back({"bfloat16", false});
    encoded.keys.push_back({"float32", true});
  }
  return encoded;
}

Encoded encode_own_checkpointing(const EncodeRequest& w) {
  if (w.job.offload_activations == Offload::pageable && w.job.checkpointing.on) {
    Encoded encoded = encode_checkpointing(w, true);
    if (!encoded.keys.empty()) encoded.keys[0].value = "offload";
    return encoded;
  }
  return encode_checkpointing(w, !w.has("unfrozen_parameters") && !w.has("rl"));
}

Encoded encode_offload(const EncodeRequest& w) {
  if (w.job.offload_activations == Offload::pageable) return w.job.checkpointing.on ? encode_own_checkpointing(w) : Encoded{};
  return {{{"activation_offloading", w.job.offload_activations == Offload::pinned}}, ""};
}

Encoded encode_optimizer(const EncodeRequest& w) {
  for (const auto& [theirs, ours] : {std::pair{"ao_adamw_4bit", "torchao.AdamW4bit"},
                                     {"ao_adamw_8bit", "torchao.AdamW8bit"},
                                     {"ao_adamw_fp8", "torchao.AdamWFp8"},
                                     {"muon", "Muon+AdamW"}})
    if (w.job.optimizer.name == ours) return {{{"optimizer", theirs}}, ""};
  return encode_hf_optimizer(w, "optimizer");
}

// The adapter and the type of the base are one choice.
Encoded encode_adapter(const EncodeRequest& w) {
  const std::optional<AdapterSettings>& a = w.job.tuning.adapter;
  const std::optional<QuantizationSettings>& q = w.job.tuning.quantization;
  if ((a && a->kind != AdapterKind::lora) || (q && (!a || !is_bitsandbytes(*q) || packed_storage(*q)))) return {};
  const bool four = q && q->bits() == 4, eight = q && !four;
  Encoded encoded{{{"adapter", !a ? Json() : four ? Json("qlora") : Json("lora")}}, ""};
  if (four || w.find("load_in_4bit")) encoded.keys.push_back({"load_in_4bit", four});
  if (eight || w.find("load_in_8bit")) encoded.keys.push_back({"load_in_8bit", eight});
  if (four && (q->type != "nf4" || w.find("bnb_config_kwargs"))) encoded.keys.push_back({"bnb_config_kwargs.bnb_4bit_quant_type", q->type});
  if (four && (!q->double_quant || w.find("bnb_config_kwargs")))
    encoded.keys.push_back({"bnb_config_kwargs.bnb_4bit_use_double_quant", q->double_quant});
  if (!a || (w.before.tuning.adapter && to_json(*w.before.tuning.adapter) == to_json(*a))) return encoded;
  for (KeyValue k : {KeyValue{"lora_r", a->r}, {"lora_alpha", plain_number(a->alpha)}, {"lora_dropout", plain_number(a->dropout)}})
    encoded.keys.push_back(std::move(k));
  const bool all = a->target_modules.all_linear;
  if (all || w.find("lora_target_linear")) encoded.keys.push_back({"lora_target_linear", all});
  if (!all && !a->target_modules.empty()) encoded.keys.push_back({"lora_target_modules", targets_of(*a)});
  if (!a->modules_to_save.empty()) encoded.keys.push_back({"lora_modules_to_save", a->modules_to_save});
  if (a->use_dora || w.has("peft_use_dora")) encoded.keys.push_back({"peft_use_dora", a->use_dora});
  return encoded;
}

Encoded encode_attention(const EncodeRequest& w) {
  const AttentionKernel a = w.job.attention;
  const bool flash = a == AttentionKernel::flash_attention_2, eager = a == AttentionKernel::eager,
             automatic = a == AttentionKernel::automatic;
  if (!flash && !eager && !automatic) return {};
  Encoded encoded;
  bool known = false;
  for (const auto& [key, on] : {std::pair{"flash_attention", flash}, {"eager_attention", eager}, {"sdp_attention", automatic}})
    if (w.find(key)) encoded.keys.push_back({key, on}), known = known || on;
  if (w.has("attn_implementation") || !known)
    encoded.keys.push_back({"attn_implementation", flash ? "flash_attention_2" : eager ? "eager" : "sdpa"});
  return encoded;
}

Encoded encode_kernel(const EncodeRequest& w) {
  const LossKernel kernel = w.job.loss_settings.kernel;
  Json plugins = w.find("plugins") && w.find("plugins")->is_array() ? *w.find("plugins") : Json::array();
  const auto with_plugin = [&](const char* name) {
    for (const Json& p : plugins)
      if (p == name) return;
    plugins.push_back(name);
  };
  Encoded encoded;
  if (kernel == LossKernel::liger) {
    with_plugin("axolotl.integrations.liger.LigerPlugin");
    encoded.keys.push_back({"liger_fused_linear_cross_entropy", true});
  } else if (w.is("liger_fused_linear_cross_entropy")) {
    encoded.keys.push_back({"liger_fused_linear_cross_entropy", false});
  }
  if (kernel == LossKernel::cut) {
    with_plugin("axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin");
    encoded.keys.push_back({"cut_cross_entropy", true});
  }
  if (kernel == LossKernel::chunked_output) encoded.keys.push_back({"chunked_cross_entropy", true});
  if (kernel == LossKernel::chunked || encoded.keys.empty()) return {};
  if (!w.find("plugins") ? !plugins.empty() : plugins != *w.find("plugins"))
    encoded.keys.insert(encoded.keys.begin(), {"plugins", plugins});
  return encoded;
}

}  // namespace

const SettingsEncoder& writes_axolotl() {
  static const SettingsEncoder kWrites = [] {
    SettingsEncoder w{{{"batch", "micro_batch_size", encode_batch},
                       {"accumulation", "gradient_accumulation_steps", encode_accumulation},
                       {"seq", "sequence_len"},
                       {"precision", "bf16", encode_precision},
                       {"autocast", "bf16", encode_precision},
                       {"checkpointing", "gradient_checkpointing", encode_own_checkpointing},
                       {"offload_activations", "activation_offloading", encode_offload},
                       {"optimizer", "optimizer", encode_optimizer},
                       {"optimizer_args", "optimizer", encode_optimizer},
                       {"clip", "max_grad_norm"},
                       {"compile", "torch_compile"},
                       {"lora", "adapter", encode_adapter},
                       {"quantization", "load_in_4bit", encode_adapter},
                       {"attention", "attn_implementation", encode_attention},
                       {"loss_kernel", "liger_fused_linear_cross_entropy", encode_kernel},
                       {"eval_batch", "eval_batch_size"},
                       {"pad_to_multiple_of", "pad_to_multiple_of"},
                       {"ddp", "ddp_find_unused_parameters", encode_hf_ddp}},
                      FlagStyle::dashes};
    for (const KeyEncoder& k : dataloader_keys()) w.keys.push_back(k);
    return w;
  }();
  return kWrites;
}

}  // namespace plimsoll
