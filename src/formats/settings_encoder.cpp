#include "formats/settings_encoder.h"

#include <fmt/format.h>

#include "formats/trainer.h"
#include "util/text.h"

namespace plimsoll {

using Json = nlohmann::json;

const Json* EncodeRequest::find(std::string_view key) const {
  const std::string path = writes.place ? writes.place(file, std::string(key)) : std::string(key);
  if (const auto whole = file.find(path); file.is_object() && whole != file.end()) return whole->is_null() ? nullptr : &*whole;
  const Json* at = &file;
  for (const std::string& part : split_at(path, '.')) {
    if (at->is_array() && !part.empty() && part.find_first_not_of("0123456789") == std::string::npos && part.size() < 6 &&
        std::stoul(part) < at->size()) {
      at = &(*at)[std::stoul(part)];
    } else {
      if (!at->is_object()) return nullptr;
      const auto it = at->find(part);
      if (it == at->end()) return nullptr;
      at = &*it;
    }
  }
  return at->is_null() ? nullptr : at;
}

bool EncodeRequest::has(std::string_view key) const {
  const Json* v = find(key);
  return v && *v != "auto";
}

bool EncodeRequest::is(std::string_view key) const {
  const Json* v = find(key);
  return v && (*v == true || *v == "true" || *v == "True" || *v == 1);
}

int64_t EncodeRequest::whole(std::string_view key) const {
  const Json* v = find(key);
  return v && v->is_number_integer() ? v->get<int64_t>() : 0;
}

std::string EncodeRequest::text(std::string_view key) const {
  const Json* v = find(key);
  return !v ? "" : lower(v->is_string() ? v->get<std::string>() : dump(*v));
}

std::string present(const EncodeRequest& w, std::initializer_list<const char*> keys) {
  std::string found = *keys.begin();
  for (const char* key : keys)
    if (w.has(key)) found = key;
  return found;
}

Encoded encode_hf_optimizer(const EncodeRequest& w, const char* key) {
  const std::optional<HfOptimizerName> name = hf_optimizer_of(w.job.optimizer);
  if (!name) return {};
  Encoded encoded{{{key, name->name}}, ""};
  if (!name->args.empty() || w.has("optim_args")) encoded.keys.push_back({"optim_args", name->args.empty() ? Json() : Json(name->args)});
  return encoded;
}

Encoded encode_checkpointing(const EncodeRequest& w, bool reentrant) {
  const Checkpointing& c = w.job.checkpointing;
  if (c.on && (c.every > 1 || !c.modules.empty() || !c.save.empty())) return {};
  Encoded encoded{{{"gradient_checkpointing", c.on}}, ""};
  const char* kKind = "gradient_checkpointing_kwargs.use_reentrant";
  if (c.on && (c.reentrant != reentrant || w.has(kKind))) encoded.keys.push_back({kKind, c.reentrant});
  return encoded;
}

Encoded encode_plain_checkpointing(const EncodeRequest& w, const char* key) {
  const Checkpointing& c = w.job.checkpointing;
  if (c.on && (c.every > 1 || c.reentrant || !c.modules.empty() || !c.save.empty())) return {};
  return {{{key, c.on}}, ""};
}

Encoded encode_mixed_precision(const EncodeRequest& w, const char* key, const char* none) {
  if (w.job.precision == Precision::fp32) return {{{key, none}}, ""};
  if (w.job.precision == Precision::amp) return {{{key, "bf16"}}, ""};
  if (w.job.precision == Precision::amp_fp16) return {{{key, "fp16"}}, ""};
  return {};
}

std::vector<KeyEncoder> dataloader_keys() {
  return {{"workers", "dataloader_num_workers"},
          {"pin_memory", "dataloader_pin_memory"},
          {"prefetch_factor", "dataloader_prefetch_factor"},
          {"persistent_workers", "dataloader_persistent_workers"}};
}

Encoded encode_hf_ddp(const EncodeRequest& w) {
  const std::optional<DdpSettings>&now = w.before.parallel.ddp, &then = w.job.parallel.ddp;
  if (!now || !then || now->world != then->world)
    return {{}, "the launcher says how many processes there are: torchrun --nproc_per_node, accelerate launch --num_processes"};
  if (now->bucket_view != then->bucket_view)
    return {{}, "give Trainer's accelerator DistributedDataParallelKwargs(gradient_as_bucket_view=True)"};
  Encoded encoded;
  if (then->bucket_mb && now->bucket_mb != then->bucket_mb) encoded.keys.push_back({"ddp_bucket_cap_mb", *then->bucket_mb});
  if (now->find_unused_parameters != then->find_unused_parameters)
    encoded.keys.push_back({"ddp_find_unused_parameters", then->find_unused_parameters});
  if (now->broadcast_buffers != then->broadcast_buffers) encoded.keys.push_back({"ddp_broadcast_buffers", then->broadcast_buffers});
  if (now->static_graph != then->static_graph) encoded.keys.push_back({"ddp_static_graph", then->static_graph});
  return encoded;
}

std::vector<KeyValue> product_of_batch(const EncodeRequest& w, const char* key) {
  const int64_t all = w.whole(key), now = w.before.batch * w.before.accumulation;
  if (all <= 0 || now <= 0 || all % now != 0) return {};
  return {{key, all / now * w.job.batch * w.job.accumulation}};
}

Json targets_of(const AdapterSettings& a) { return a.target_modules.empty() ? Json() : Json(to_json(a.target_modules)); }

Json plain_number(double n) {
  const bool whole = n > -1e15 && n < 1e15 && n == static_cast<double>(static_cast<int64_t>(n));
  return whole ? Json(static_cast<int64_t>(n)) : Json(n);
}

}  // namespace plimsoll
