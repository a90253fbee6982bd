// kohya's sd-scripts, the way back: which keys of its TOML and flags of its commands say each setting.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "formats/kohya.h"
#include "formats/launch.h"
#include "formats/readers.h"
#include "formats/trainer.h"
#include "job/fields.h"
#include "job/settings.h"
#include "util/text.h"

namespace plimsoll {

namespace {

using Json = nlohmann::json;

// Sections do not count: a key is in any of them. A new one goes to the section of one that is much like it, or to the first.
std::string place_of(const Json& file, const std::string& key) {
  std::string first;
  if (!file.is_object() || key.find('.') != std::string::npos || file.contains(key)) return key;
  for (const auto& section : file.items())
    if (section.value().is_object() && section.value().contains(key)) return section.key() + "." + key;
  for (const char* near : {"gradient_accumulation_steps", "train_batch_size", "optimizer_type", "pretrained_model_name_or_path"}) {
    if (file.contains(near)) return key;
    for (const auto& section : file.items())
      if (section.value().is_object() && section.value().contains(near)) return section.key() + "." + key;
  }
  return key;
}

// In the file of datasets: where all of them have it from.
Encoded encode_datasets(const EncodeRequest& w, const char* key, const Json& value) {
  Encoded encoded;
  const Json& sets = w.file["datasets"];
  if (w.find(std::string("general.") + key)) encoded.keys.push_back({std::string("general.") + key, value});
  for (size_t i = 0; i < sets.size(); ++i)
    if (sets[i].contains(key)) encoded.keys.push_back({fmt::format("datasets.{}.{}", i, key), value});
  if (encoded.keys.empty()) encoded.keys.push_back({std::string("datasets.0.") + key, value});
  return encoded;
}

Encoded encode_batch(const EncodeRequest& w) {
  if (is_kohya_dataset(w.file)) return encode_datasets(w, "batch_size", w.job.batch);
  return {{{"train_batch_size", w.job.batch}}, ""};
}

Encoded encode_side(const EncodeRequest& w) {
  const Json* old = is_kohya_dataset(w.file) ? nullptr : w.find("resolution");
  const Json side = old && old->is_string() ? Json(fmt::format("{0},{0}", w.job.seq)) : Json(w.job.seq);
  if (is_kohya_dataset(w.file)) return encode_datasets(w, "resolution", w.job.seq);
  return {{{"resolution", side}}, ""};
}

Encoded encode_precision(const EncodeRequest& w) {
  const Precision p = w.job.precision;
  const bool half = p == Precision::bf16 || p == Precision::fp16, adapter = w.job.tuning.adapter.has_value();
  const std::string mixed = p == Precision::fp32 ? "no" : p == Precision::bf16 || p == Precision::amp ? "bf16" : "fp16";
  if (adapter && (p == Precision::amp || p == Precision::amp_fp16)) return {{}, "the frozen model of an adapter is in the mixed type"};
  if (half && p == Precision::bf16 && !w.job.autocast) return {{}, "sd-scripts runs under autocast whenever mixed_precision is not no"};
  Encoded encoded{{{"mixed_precision", mixed}}, ""};
  for (const auto& [key, type] : {std::pair{"full_bf16", Precision::bf16}, {"full_fp16", Precision::fp16}})
    if ((!adapter && p == type) || w.find(key)) encoded.keys.push_back({key, p == type && (!adapter || w.is(key))});
  return encoded;
}

Encoded encode_optimizer(const EncodeRequest& w) {
  if (!w.job.optimizer.args.values().empty()) return {{}, "write optimizer_args as sd-scripts takes them, e.g. \"fused=True\""};
  for (const auto& [theirs, ours] : {std::pair{"AdamW", "AdamW"},
                                     {"AdamW8bit", "AdamW8bit"},
                                     {"Lion", "lion_pytorch.Lion"},
                                     {"Lion8bit", "Lion8bit"},
                                     {"PagedAdamW", "PagedAdamW"},
                                     {"PagedAdamW8bit", "PagedAdamW8bit"},
                                     {"PagedAdamW32bit", "PagedAdamW32bit"},
                                     {"PagedLion8bit", "PagedLion8bit"},
                                     {"Adafactor", "TransformersAdafactor"},
                                     {"Prodigy", "Prodigy"}}) {
    if (w.job.optimizer.name != ours) continue;
    Encoded encoded{{{"optimizer_type", theirs}}, ""};
    for (const char* old : {"use_8bit_adam", "use_lion_optimizer"})
      if (w.find(old)) encoded.keys.push_back({old, false});
    return encoded;
  }
  return {};
}

Encoded encode_rank(const EncodeRequest& w) {
  const std::optional<AdapterSettings>& a = w.job.tuning.adapter;
  if (!a || !w.before.tuning.adapter || a->kind != AdapterKind::lora)
    return {{}, "adapters are another script: train_network.py and its relatives"};
  return {{{"network_dim", a->r}, {"network_alpha", plain_number(a->alpha)}}, ""};
}

Encoded encode_attention(const EncodeRequest& w) {
  const bool automatic = w.job.attention == AttentionKernel::automatic, efficient = w.job.attention == AttentionKernel::efficient;
  if (!automatic && !efficient) return {};
  Encoded encoded;
  for (const auto& [key, on] : {std::pair{"sdpa", automatic}, {"xformers", efficient}, {"mem_eff_attn", false}})
    if (on || w.find(key)) encoded.keys.push_back({key, on});
  return encoded;
}

Encoded encode_checkpoints(const EncodeRequest& w) { return encode_plain_checkpointing(w, "gradient_checkpointing"); }

Encoded encode_offload(const EncodeRequest& w) {
  if (w.job.offload_activations == Offload::pinned) return {};
  return {{{"cpu_offload_checkpointing", w.job.offload_activations == Offload::pageable}}, ""};
}

Encoded encode_ddp(const EncodeRequest& w) {
  const std::optional<DdpSettings>&now = w.before.parallel.ddp, &then = w.job.parallel.ddp;
  if (!now || !then || now->world != then->world) return {{}, "accelerate launch --num_processes says how many processes there are"};
  return {{{"ddp_gradient_as_bucket_view", then->bucket_view}, {"ddp_static_graph", then->static_graph}}, ""};
}

}  // namespace

const SettingsEncoder& writes_kohya() {
  static const SettingsEncoder kWrites{{{"batch", "train_batch_size", encode_batch},
                                        {"accumulation", "gradient_accumulation_steps"},
                                        {"seq", "resolution", encode_side},
                                        {"precision", "mixed_precision", encode_precision},
                                        {"autocast", "mixed_precision", encode_precision},
                                        {"checkpointing", "gradient_checkpointing", encode_checkpoints},
                                        {"offload_activations", "cpu_offload_checkpointing", encode_offload},
                                        {"swap_blocks", "blocks_to_swap"},
                                        {"optimizer", "optimizer_type", encode_optimizer},
                                        {"optimizer_args", "optimizer_type", encode_optimizer},
                                        {"optimizer_in_backward", "fused_backward_pass"},
                                        {"clip", "max_grad_norm"},
                                        {"compile", "torch_compile"},
                                        {"lora", "network_dim", encode_rank},
                                        {"attention", "sdpa", encode_attention},
                                        {"workers", "max_data_loader_n_workers"},
                                        {"persistent_workers", "persistent_data_loader_workers"},
                                        {"ddp", "ddp_gradient_as_bucket_view", encode_ddp}},
                                       FlagStyle::switches,
                                       place_of};
  return kWrites;
}

}  // namespace plimsoll
